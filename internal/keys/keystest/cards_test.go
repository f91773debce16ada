package keystest_test

import (
	"context"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/keys/keystest"
)

// TestMemoryCards: the stand-in for cards passes the suite that cards pass.
func TestMemoryCards(t *testing.T) {
	keystest.Run(t, func(*testing.T) keystest.Harness {
		cards := keystest.NewMemoryCards(1)
		return keystest.Harness{
			Open:      func(*testing.T) keys.Backend { cards.Reopen(); return cards },
			Other:     func(*testing.T) keys.Backend { return keystest.NewMemoryCards(2) },
			Can:       []keys.Capability{{Algorithm: keys.ES256}, {Algorithm: keys.RS256, RSABits: 2048}},
			Slots:     3,
			WrongPINs: 3,
			PIN:       keystest.CardPIN, WrongPIN: "864213", SharedPIN: true,
			Prepare:    func(t *keys.Template) { t.Card.PIN = []byte(keystest.CardPIN) },
			Persistent: true,
			Stall:      func(*testing.T) func() { return cards.Card(1).Block() },
		}
	})
}

// onCard makes a key on a card.
func onCard(t *testing.T, c *keystest.MemoryCards, o keys.OnCard) keys.Material {
	t.Helper()
	o.PIN = []byte(keystest.CardPIN)
	m, err := c.Create(t.Context(), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, Card: o})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMemoryCardsPlace(t *testing.T) {
	c := keystest.NewMemoryCards(1, 2)
	for _, test := range []struct {
		ask  keys.OnCard
		want keys.Place
	}{
		{keys.OnCard{Serial: 1}, keys.Place{Serial: 1, Slot: "9a", PINPolicy: keys.PolicyNever, TouchPolicy: keys.PolicyNever, Attested: true}},
		{keys.OnCard{Serial: 1, PINPolicy: keys.PolicyAlways}, keys.Place{Serial: 1, Slot: "82", PINPolicy: keys.PolicyAlways, TouchPolicy: keys.PolicyNever, Attested: true}},
		{keys.OnCard{Serial: 2, Slot: "9c", TouchPolicy: keys.PolicyCached}, keys.Place{Serial: 2, Slot: "9c", PINPolicy: keys.PolicyNever, TouchPolicy: keys.PolicyCached, Attested: true}},
	} {
		m := onCard(t, c, test.ask)
		if m.Card == nil || *m.Card != test.want || m.PIN != (test.want.PINPolicy != keys.PolicyNever) {
			t.Errorf("got %+v, PIN %v, want %+v", m.Card, m.PIN, test.want)
		}
		if got, want := c.Unit(m), map[uint32]string{1: "1", 2: "2"}[test.want.Serial]; got != want {
			t.Errorf("unit: got %q, want %q", got, want)
		}
	}
	for name, ask := range map[string]keys.OnCard{
		"which card?": {PIN: []byte(keystest.CardPIN)}, "no such slot": {Serial: 1, Slot: "9b", PIN: []byte(keystest.CardPIN)},
		"taken": {Serial: 1, Slot: "9a", PIN: []byte(keystest.CardPIN)}, "policy": {Serial: 1, PINPolicy: "cached", PIN: []byte(keystest.CardPIN)},
	} {
		if _, err := c.Create(t.Context(), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, Card: ask}); fault.KindOf(err) != fault.BadRequest {
			t.Errorf("%s: got %v, want bad-request", name, err)
		}
	}
	_, err := c.Create(t.Context(), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, Card: keys.OnCard{Serial: 1}})
	if fault.KindOf(err) != fault.PINRequired {
		t.Errorf("without a PIN: got %v, want pin-required", err)
	}
}

func TestMemoryCardsTouch(t *testing.T) {
	c := keystest.NewMemoryCards(1)
	m := onCard(t, c, keys.OnCard{TouchPolicy: keys.PolicyAlways})
	for _, test := range []struct {
		end  func()
		want fault.Kind
	}{
		{func() { c.Touch(1) }, ""},
		{func() { c.NoTouch(1) }, fault.TouchTimeout},
		{func() { c.Remove(1) }, fault.DeviceAbsent},
	} {
		done := make(chan error, 1)
		go func() { done <- sign(context.Background(), c, m) }()
		c.WaitTouch(1)
		test.end()
		if err := <-done; fault.KindOf(err) != test.want {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
	c.Insert(1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := sign(ctx, c, m); fault.KindOf(err) != fault.Deadline {
		t.Errorf("nobody there: got %v, want deadline", err)
	}
}

// TestMemoryCardsComeAndGo checks that OnChange reports a removed card and that its
// keys are locked.
func TestMemoryCardsComeAndGo(t *testing.T) {
	c := keystest.NewMemoryCards(1)
	m := onCard(t, c, keys.OnCard{PINPolicy: keys.PolicyOnce})
	type change struct {
		unit string
		gone bool
	}
	var heard []change
	c.OnChange(func(unit string, gone bool) { heard = append(heard, change{unit, gone}) })
	if err := c.Unlock(t.Context(), m, []byte(keystest.CardPIN), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	c.Remove(1)
	if err := sign(t.Context(), c, m); fault.KindOf(err) != fault.DeviceAbsent {
		t.Errorf("removed: got %v, want device-absent", err)
	}
	c.Insert(2)
	if err := sign(t.Context(), c, m); fault.KindOf(err) != fault.KeyMismatch {
		t.Errorf("another card: got %v, want key-mismatch", err)
	}
	c.Insert(1)
	if err := sign(t.Context(), c, m); fault.KindOf(err) != fault.PINRequired {
		t.Errorf("back again: got %v, want pin-required", err)
	}
	want := []change{{"1", true}, {"2", false}, {"1", false}}
	if len(heard) != len(want) || heard[0] != want[0] || heard[1] != want[1] || heard[2] != want[2] {
		t.Errorf("heard %v, want %v", heard, want)
	}
}

// TestMemoryCardsSideBySide checks that a card that hangs does not delay another card.
func TestMemoryCardsSideBySide(t *testing.T) {
	c := keystest.NewMemoryCards(1, 2)
	a, b := onCard(t, c, keys.OnCard{Serial: 1}), onCard(t, c, keys.OnCard{Serial: 2})
	release := c.Card(1).Block()
	done := make(chan error, 1)
	go func() { done <- sign(context.Background(), c, a) }()
	c.Card(1).WaitBlocked()
	if err := sign(t.Context(), c, b); err != nil {
		t.Errorf("the other card: %v", err)
	}
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	c.Card(2).Fail(&fault.Error{Kind: fault.DeviceFailed, Message: "broken"})
	s := c.Status(t.Context())
	if len(s.Units) != 2 || s.Units[0].Device != "card:1" || s.Units[1].State != keys.StateFailed || s.State != keys.StateReady {
		t.Errorf("status: got %+v, want card 1 ready and card 2 failed", s)
	}
}

func TestMemoryCardsManage(t *testing.T) {
	c := keystest.NewMemoryCards(1)
	ctx, pin, puk := t.Context(), []byte(keystest.CardPIN), []byte(keystest.CardPUK)
	m := onCard(t, c, keys.OnCard{PINPolicy: keys.PolicyOnce})
	unlock := func(pin string) error { return c.Unlock(ctx, m, []byte(pin), time.Now().Add(time.Hour)) }
	steps := []struct {
		name string
		err  error
		want fault.Kind
	}{
		{"a wrong old PIN", c.ChangePIN(ctx, 1, puk, []byte("111222")), fault.PINRequired},
		{"a short PIN", c.ChangePIN(ctx, 1, pin, []byte("1")), fault.BadRequest},
		{"another card", c.ChangePIN(ctx, 2, pin, []byte("111222")), fault.KeyMismatch},
		{"change", c.ChangePIN(ctx, 1, pin, []byte("111222")), ""},
		{"the old PIN", unlock(keystest.CardPIN), fault.PINRequired},
		{"certificate, locked", c.StoreCertificate(ctx, m, []byte("cert"), nil, nil), fault.PINRequired},
		{"the new PIN", unlock("111222"), ""},
		{"certificate", c.StoreCertificate(ctx, m, []byte("cert"), nil, nil), ""},
		{"a wrong PUK", c.ChangePUK(ctx, 1, pin, []byte("33334444")), fault.PINRequired},
		{"change the PUK", c.ChangePUK(ctx, 1, puk, []byte("33334444")), ""},
		{"unblock with the old PUK", c.Unblock(ctx, 1, puk, pin), fault.PINRequired},
		{"unblock", c.Unblock(ctx, 1, []byte("33334444"), pin), ""},
		{"unblocked", unlock(keystest.CardPIN), ""},
		{"set up, wrong PUK", c.SetUp(ctx, 1, keys.CardSetUp{OldPIN: pin, OldPUK: puk, PIN: pin, PUK: puk}), fault.PINRequired},
		{"set up", c.SetUp(ctx, 1, keys.CardSetUp{OldPIN: pin, OldPUK: []byte("33334444"), PIN: []byte("999888"), PUK: puk}), ""},
		{"set up, the PIN", unlock("999888"), ""},
	}
	for _, s := range steps {
		if fault.KindOf(s.err) != s.want {
			t.Errorf("%s: got %v, want %q", s.name, s.err, s.want)
		}
	}
	c.Describe(1, func(card *keys.Card) { card.Notes = []keys.CardNote{{Message: "few tries"}} })
	list, err := c.Cards(ctx)
	if err != nil || len(list) != 1 || list[0].Serial != 1 || len(list[0].Notes) != 1 || len(list[0].Slots) != 1 || string(list[0].Slots[0].Certificate) != "cert" {
		t.Errorf("cards: got %+v, %v, want card 1 with a note, and a key with its certificate", list, err)
	}
}
