package piv_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv"
	"holdfast/test/pace"
	"holdfast/test/pivcard"
)

// start returns a rig with cards that are set up, and a backend on it.
func start(t *testing.T, serials ...uint32) (*pivcard.Rig, *piv.PIV, []*pivcard.Card) {
	t.Helper()
	rig := pivcard.Start(t, 2)
	b := openPIV(t, config(t, rig))
	var cards []*pivcard.Card
	for _, serial := range serials {
		card := rig.NewCard(pivcard.Options{Serial: serial, TouchTimeout: 500 * time.Millisecond})
		rig.Insert(card)
		setUp(t, b, serial)
		cards = append(cards, card)
	}
	return rig, b, cards
}

// wantError notes an error that is not of a kind or does not say something.
func wantError(t *testing.T, what string, err error, kind fault.Kind, says ...string) {
	t.Helper()
	text := ""
	if e, ok := fault.AsError(err); ok {
		text = e.Message + "; " + e.Advice()
	}
	if fault.KindOf(err) != kind {
		t.Errorf("%s: got %q (%v), want %q", what, fault.KindOf(err), err, kind)
	}
	for _, s := range says {
		if !strings.Contains(text, s) {
			t.Errorf("%s: got %q, want %q in it", what, text, s)
		}
	}
}

// within calls f until it returns nil, and notes when that took longer than
// limit.
func within(t *testing.T, what string, limit time.Duration, f func() error) {
	t.Helper()
	begun := time.Now()
	for {
		err := f()
		if err == nil {
			t.Logf("%s: %v", what, time.Since(begun))
			return
		}
		if time.Since(begun) > limit {
			t.Fatalf("%s: after %v: %v", what, limit, err)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestHotPlug(t *testing.T) {
	rig := pivcard.Start(t, 2)
	b := openPIV(t, config(t, rig))
	heard := make(chan string, 10)
	b.OnChange(func(unit string, gone bool) { heard <- fmt.Sprint(unit, " ", gone) })
	_, err := b.Create(soon(t), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256})
	wantError(t, "no card", err, fault.DeviceAbsent, "no card", "insert")
	if s := b.Status(soon(t)); s.State != keys.StateAbsent || s.Reason == "" || s.Next.Do != fault.InsertCard || len(s.Units) != 0 {
		t.Errorf("status without a card: %+v", s)
	}

	card := rig.NewCard(pivcard.Options{Serial: 1})
	begun := time.Now()
	rig.Insert(card)
	if got := <-heard; got != "1 false" || pace.Over(t, time.Since(begun), 2*time.Second) {
		t.Errorf("heard %q after %v, want that card 1 came, within 2 s", got, time.Since(begun))
	}
	setUp(t, b, 1)
	m := create(t, b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	unlock(t, b, m)
	if err := sign(soon(t), b, m); err != nil {
		t.Error(err)
	}
	rig.Remove(card)
	if got := <-heard; got != "1 true" {
		t.Errorf("heard %q, want that card 1 is gone", got)
	}
	wantError(t, "removed", sign(soon(t), b, m), fault.DeviceAbsent, "no card", "insert card 1")
	rig.Insert(card)
	within(t, "inserted again", recovery, func() error { return b.Check(soon(t), m) })
	wantError(t, "inserted again", sign(soon(t), b, m), fault.PINRequired, "holdfast unlock")
}

// TestOtherSerial: a card that is not the key's is shown no PIN, and loses no try.
func TestOtherSerial(t *testing.T) {
	rig, b, cards := start(t, 1)
	m := create(t, b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	unlock(t, b, m)
	other := rig.NewCard(pivcard.Options{Serial: 2})
	rig.Remove(cards[0])
	rig.Insert(other) // into the same reader
	waitUntil(t, func() bool { s := b.Status(soon(t)); return len(s.Units) == 1 && s.Units[0].Device == "card:2" })
	for range 3 {
		wantError(t, "sign", sign(soon(t), b, m), fault.KeyMismatch, "the key is on card 1", "in the reader is card 2", "insert card 1")
		err := b.Unlock(soon(t), m, []byte(rightPIN), time.Now().Add(time.Hour))
		wantError(t, "unlock", err, fault.KeyMismatch, "card 1", "card 2")
	}
	wantError(t, "check", b.Check(soon(t), m), fault.KeyMismatch)
	wantError(t, "change its PIN", b.ChangePIN(soon(t), 1, []byte(rightPIN), []byte(wrongPIN)), fault.DeviceAbsent, "card 1 is in no reader")
	if n := other.Count(pivcard.Verify) + other.Count(pivcard.ChangeReference) + other.Count(pivcard.Authenticate); n != 0 {
		t.Errorf("the other card received %d VERIFY, CHANGE REFERENCE or AUTHENTICATE, want none", n)
	}
	rig.Insert(cards[0]) // beside it
	within(t, "both", recovery, func() error { return b.Check(soon(t), m) })
	unlock(t, b, m)
	if err := sign(soon(t), b, m); err != nil {
		t.Error(err)
	}
	_, err := b.Create(soon(t), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, Card: keys.OnCard{PIN: []byte(rightPIN)}})
	wantError(t, "create on which card", err, fault.BadRequest, "1, 2", "--card")
}

// TestSideBySide: one card waits for a touch, and the other signs meanwhile.
func TestSideBySide(t *testing.T) {
	_, b, cards := start(t, 1, 2)
	slow := create(t, b, keys.OnCard{Serial: 1, TouchPolicy: keys.PolicyAlways})
	quick := create(t, b, keys.OnCard{Serial: 2})
	if b.Unit(slow) != "1" || b.Unit(quick) != "2" {
		t.Errorf("units %q and %q, want 1 and 2", b.Unit(slow), b.Unit(quick))
	}
	if err := sign(soon(t), b, quick); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- sign(soon(t), b, slow) }()
	<-cards[0].Blinks()
	for range 3 {
		if err := sign(soon(t), b, quick); err != nil {
			t.Errorf("beside a card that blinks: %v", err)
		}
	}
	if !cards[0].Touch() {
		t.Error("the first card does not wait any more: the second did not sign beside it")
	}
	if err := <-waiting; err != nil {
		t.Errorf("touched: %v", err)
	}
	s := b.Status(soon(t))
	if len(s.Units) != 2 || s.Units[0].Device != "card:1" || s.Units[1].Device != "card:2" || s.State != keys.StateReady || s.Units[1].Since.IsZero() {
		t.Errorf("status: %+v, want two cards that are ready", s)
	}
}

func TestTouch(t *testing.T) {
	_, b, cards := start(t, 1)
	m := create(t, b, keys.OnCard{TouchPolicy: keys.PolicyAlways, PINPolicy: keys.PolicyOnce})
	unlock(t, b, m)
	wantError(t, "nobody there", sign(soon(t), b, m), fault.TouchTimeout, "touch")
	ctx, cancel := context.WithCancel(t.Context())
	<-cards[0].Blinks()
	left := make(chan error, 1)
	go func() { left <- sign(ctx, b, m) }()
	<-cards[0].Blinks()
	cancel()
	begun := time.Now()
	if err := <-left; err == nil || pace.Over(t, time.Since(begun), 200*time.Millisecond) {
		t.Errorf("a caller who left: %v after %v", err, time.Since(begun))
	}
	within(t, "the next caller", recovery, func() error {
		return b.Unlock(soon(t), m, []byte(rightPIN), time.Now().Add(time.Hour))
	})
	cards[0].TouchAfter(10 * time.Millisecond)
	if err := sign(soon(t), b, m); err != nil {
		t.Errorf("touched: %v", err)
	}
}

// TestPCSCD: without pcscd that is what is said, and when it is there again the
// cards are, too.
func TestPCSCD(t *testing.T) {
	rig, b, _ := start(t, 1)
	m := create(t, b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	unlock(t, b, m)
	rig.StopPCSCD()
	within(t, "gone", recovery, func() error {
		if err := sign(soon(t), b, m); fault.KindOf(err) != fault.DeviceAbsent || !strings.Contains(err.Error(), "pcscd") {
			return fmt.Errorf("got %w, want device-absent that names pcscd", errors.Join(err))
		}
		return nil
	})
	if s := b.Status(soon(t)); s.State != keys.StateAbsent || !strings.Contains(s.Reason, "pcscd") {
		t.Errorf("status: %+v", s)
	}
	if _, err := b.Cards(soon(t)); fault.KindOf(err) != fault.DeviceAbsent {
		t.Errorf("cards: got %v, want device-absent", err)
	}
	rig.Restart()
	within(t, "back", recovery, func() error { return b.Check(soon(t), m) })
	wantError(t, "back", sign(soon(t), b, m), fault.PINRequired)
	rig.Restart()
	within(t, "restarted", recovery, func() error { // the restart may be noticed between the two
		return errors.Join(b.Unlock(soon(t), m, []byte(rightPIN), time.Now().Add(time.Hour)), sign(soon(t), b, m))
	})
}

// TestReaderInUse: another program has the card; then we have it and let it go.
func TestReaderInUse(t *testing.T) {
	rig, b, cards := start(t, 1)
	m := create(t, b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	unlock(t, b, m)
	if err := sign(soon(t), b, m); err != nil {
		t.Fatal(err)
	}
	reader := rig.ReaderOf(cards[0])
	var release func()
	within(t, "let go", 3*time.Second, func() (err error) { release, err = hold(rig, reader); return err })
	if cards[0].Verified() {
		t.Error("the card was let go with its PIN verified")
	}
	wantError(t, "in use", sign(soon(t), b, m), fault.Busy, "in use by")
	if s := b.Status(soon(t)); len(s.Units) != 1 || s.Units[0].State != keys.StateBusy {
		t.Errorf("status: %+v, want a card that is busy", s)
	}
	release()
	within(t, "free", recovery, func() error { return sign(soon(t), b, m) })

	b.Lock(nil)
	within(t, "let go", 3*time.Second, func() (err error) { release, err = hold(rig, reader); return err })
	late := openPIV(t, config(t, rig)) // finds a card that it cannot identify
	wantError(t, "in use from the start", late.Check(soon(t), m), fault.Busy, "in use by")
	list, err := late.Cards(soon(t))
	if err != nil || len(list) != 1 || list[0].State != keys.StateBusy || len(list[0].Notes) != 0 || strings.Contains(list[0].Hint, "doctor") {
		t.Errorf("cards: %+v, %v, want one that is in use, without gnupg's options: it is not gnupg's", list, err)
	}
	release() // who asks now need not wait for the next of the looks, which are seconds apart by now
	within(t, "free", 700*time.Millisecond, func() error { return late.Check(soon(t), m) })
}

// TestNotPIV: a card of another kind is passed over.
func TestNotPIV(t *testing.T) {
	rig := pivcard.Start(t, 2, pivcard.NewCard(pivcard.Options{NotPIV: true}))
	b := openPIV(t, config(t, rig))
	list, err := b.Cards(soon(t))
	if err != nil || len(list) != 1 || list[0].State != keys.StateAbsent || list[0].Serial != 0 || list[0].Reason == "" {
		t.Errorf("cards: %+v, %v, want a reader without a PIV card", list, err)
	}
	_, err = b.Create(soon(t), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256})
	wantError(t, "create", err, fault.DeviceAbsent, "PIV")
	card := rig.NewCard(pivcard.Options{Serial: 5})
	rig.Insert(card)
	within(t, "beside it", recovery, func() error {
		return b.SetUp(soon(t), 5, keys.CardSetUp{PIN: []byte(rightPIN), PUK: []byte(rightPUK)})
	})
	create(t, b, keys.OnCard{})
}

// TestHangingReader: a card that hangs when it comes does not keep another one
// from being found.
func TestHangingReader(t *testing.T) {
	rig := pivcard.Start(t, 2)
	b := openPIV(t, config(t, rig))
	bad, good := rig.NewCard(pivcard.Options{Serial: 1}), rig.NewCard(pivcard.Options{Serial: 2})
	bad.Order(pivcard.Hang().Lasting())
	if err := b.Check(soon(t), keys.Material{}); err == nil {
		t.Error("an empty material is good")
	}
	heard := make(chan string, 10)
	b.OnChange(func(unit string, gone bool) { heard <- unit })
	b.Status(soon(t))
	rig.Insert(bad)
	begun := time.Now()
	rig.Insert(good)
	if got := <-heard; got != "2" || pace.Over(t, time.Since(begun), 2*time.Second) {
		t.Errorf("heard %q after %v, want card 2 within 2 s", got, time.Since(begun))
	}
	bad.Mend()
	select {
	case got := <-heard:
		if got != "1" {
			t.Errorf("heard %q, want card 1", got)
		}
	case <-time.After(30 * time.Second):
		t.Error("the card that hung was never asked again")
	}
}

// TestAskedAtOnce: a request directly after the insertion of a card finds the card.
func TestAskedAtOnce(t *testing.T) {
	rig, b, cards := start(t, 1)
	m := create(t, b, keys.OnCard{})
	for range 5 {
		if err := rig.Remove(cards[0]); err != nil {
			t.Fatal(err)
		}
		within(t, "gone", recovery, func() error {
			if err := b.Check(soon(t), m); fault.KindOf(err) != fault.DeviceAbsent {
				return fmt.Errorf("got %v, want device-absent", err)
			}
			return nil
		})
		if err := rig.Insert(cards[0]); err != nil {
			t.Fatal(err)
		}
		if err := b.Check(soon(t), m); err != nil {
			t.Errorf("asked at once: %v", err)
		}
	}
}
