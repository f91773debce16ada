package piv_test

import (
	"strings"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
	"holdfast/test/pace"
)

// TestCardLies: what a card says of a key is compared with what was asked for, and
// with what it said before.
func TestCardLies(t *testing.T) {
	s := newScript(t)
	b := s.open(t)
	ask := keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, Card: keys.OnCard{Slot: "9a", PIN: []byte(rightPIN), AllowUnattested: true}}
	m, err := b.Create(soon(t), ask)
	if err != nil {
		t.Fatal(err)
	}
	file, err := b.Export(m)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[wire.Op]func() error{
		wire.Generate: func() error { _, err := b.Create(soon(t), ask); return err },
		wire.Slot:     func() error { return b.Check(soon(t), m) },
	}
	for op, lies := range map[wire.Op]map[string]fault.Kind{
		wire.Generate: {
			"lie: PIN policy": fault.KeyMismatch, "lie: touch policy": fault.KeyMismatch, "lie: no key": fault.KeyMismatch, "lie: bad key": fault.KeyMismatch,
			"lie: no slot": fault.DeviceFailed, "lie: P-384": fault.KeyMismatch,
		},
		wire.Slot: {
			"lie: PIN policy": fault.KeyMismatch, "lie: touch policy": fault.KeyMismatch, "lie: no key": fault.DeviceFailed, "lie: bad key": fault.KeyMismatch,
			"lie: no slot": fault.DeviceFailed, "lie: P-384": fault.KeyMismatch,
		},
	} {
		for lie, want := range lies {
			s.order(op, lie)
			wantError(t, string(op)+", "+lie, calls[op](), want)
		}
	}
	m, err = b.Create(soon(t), ask)
	if err != nil {
		t.Fatal(err)
	}
	ask.Card.AllowUnattested = false
	wantError(t, "no statement", calls[wire.Generate](), fault.Unsupported, "--allow-unattested")
	s.order(wire.Slot, "lie: no slot")
	_, err = b.Import(soon(t), adopting(rightPIN), file, true)
	wantError(t, "adopting nothing", err, fault.DeviceFailed)
	s.order(wire.Inspect, "empty")
	ask.Card.Slot = ""
	wantError(t, "a card that says nothing of itself", calls[wire.Generate](), fault.DeviceFailed)
	s.order(wire.Inspect, "empty")
	if list, err := b.Cards(soon(t)); err != nil || len(list) != 1 || list[0].State != keys.StateFailed || list[0].Reason == "" {
		t.Errorf("cards: %+v, %v, want one that failed", list, err)
	}
}

// TestUsualPolicies: where a card cannot tell, an adopted key has the policies that
// YubiKeys give keys of their own accord.
func TestUsualPolicies(t *testing.T) {
	s := newScript(t)
	b := s.open(t)
	for slot, want := range map[string]keys.Policy{"9a": keys.PolicyOnce, "9c": keys.PolicyAlways, "9d": keys.PolicyOnce, "9e": keys.PolicyNever, "82": keys.PolicyOnce} {
		made := s.create(b, keys.OnCard{Slot: slot})
		file, err := b.Export(made)
		if err != nil {
			t.Fatal(err)
		}
		m, err := b.Import(soon(t), adopting(rightPIN), file, true)
		if err != nil || m.Card.PINPolicy != want || m.Card.TouchPolicy != keys.PolicyNever || !m.Imported {
			t.Errorf("%s: got %+v, %v, want PIN policy %s", slot, m.Card, err, want)
		}
	}
}

// TestFull: a card without a free slot says so.
func TestFull(t *testing.T) {
	s := newScript(t)
	b := s.open(t)
	for range 21 {
		s.create(b, keys.OnCard{})
	}
	_, err := b.Create(soon(t), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, Card: keys.OnCard{PIN: []byte(rightPIN), AllowUnattested: true}})
	wantError(t, "the 22nd key", err, fault.Busy, "no free slot", "--overwrite")
}

// TestNoSerial: a card without a serial number is told of, and not used.
func TestNoSerial(t *testing.T) {
	s := newScript(t)
	s.order(wire.Identify, "lie: serial 0")
	b := s.open(t)
	list, err := b.Cards(soon(t))
	if err != nil || len(list) != 1 || list[0].State != keys.StateFailed || !strings.Contains(list[0].Reason, "serial number") {
		t.Errorf("got %+v, %v, want a card that failed", list, err)
	}
}

// TestClosed: after Close every call fails at once and starts nothing.
func TestClosed(t *testing.T) {
	s := newScript(t)
	b := s.open(t)
	m := s.create(b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	unlock(t, b, m)
	b.Close()
	starts := s.starts()
	begun := time.Now()
	for name, err := range map[string]error{
		"sign": sign(soon(t), b, m), "check": b.Check(soon(t), m), "change": b.ChangePIN(soon(t), 7, []byte(rightPIN), []byte(wrongPIN)),
		"unlock": b.Unlock(soon(t), m, []byte(rightPIN), time.Now().Add(time.Hour)),
	} {
		wantError(t, name, err, fault.DeviceAbsent, "closed")
	}
	if _, err := b.Cards(soon(t)); fault.KindOf(err) != fault.DeviceAbsent {
		t.Errorf("cards: got %v, want device-absent", err)
	}
	if s.starts() != starts || pace.Over(t, time.Since(begun), time.Second) {
		t.Errorf("%d children were started, in %v", s.starts()-starts, time.Since(begun))
	}
}
