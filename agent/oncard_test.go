package agent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"holdfast/agent/keys"
	"holdfast/agent/keys/keystest"
	"holdfast/agent/wire"
)

// onCard is a request for a key on the only card, with the card's PIN.
func onCard(name string, change ...func(*wire.CreateKeyParameters)) wire.CreateKeyParameters {
	p := wire.CreateKeyParameters{Name: name, Purpose: "tls-client", Backend: "piv", PIN: []byte(keystest.CardPIN)}
	for _, c := range change {
		c(&p)
	}
	return p
}

func TestKeyOnCardIsShownWithItsPlace(t *testing.T) {
	r := newRig(t, withCards(12))
	for name, c := range map[string]struct {
		on   *wire.OnCard
		pin  bool
		want wire.Place
	}{
		"plain":  {nil, true, wire.Place{Card: 12, Slot: "9a", PINPolicy: "once", TouchPolicy: "never", Attested: true}},
		"always": {&wire.OnCard{Card: 12, Slot: "82", PINPolicy: "always"}, true, wire.Place{Card: 12, Slot: "82", PINPolicy: "always", TouchPolicy: "never", Attested: true}},
		"never":  {&wire.OnCard{Slot: "83", PINPolicy: "never"}, false, wire.Place{Card: 12, Slot: "83", PINPolicy: "never", TouchPolicy: "never", Attested: true}},
	} {
		var reply wire.KeyReply
		if err := r.call(wire.CreateKey, onCard(name, func(p *wire.CreateKeyParameters) { p.OnCard = c.on }), &reply); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if k := reply.Key; k.Place == nil || *k.Place != c.want || k.PIN != c.pin || k.UnlockedUntil != nil {
			t.Errorf("%s: on %+v with PIN %t, unlocked until %v, want %+v, %t, locked", name, k.Place, k.PIN, k.UnlockedUntil, c.want, c.pin)
		}
	}
	if _, err := r.signClient("never"); err != nil {
		t.Errorf("a key that never wants a PIN: %v", err)
	}
	_, err := r.signClient("plain")
	wantKind(t, err, keys.PINRequired)
}

func TestBadPlacesAreRefused(t *testing.T) {
	r := newRig(t, withCards(1))
	for about, change := range map[string]func(*wire.CreateKeyParameters){
		"a slot for nothing":      func(p *wire.CreateKeyParameters) { p.OnCard = &wire.OnCard{Slot: "9b"} },
		"a PIN policy":            func(p *wire.CreateKeyParameters) { p.OnCard = &wire.OnCard{PINPolicy: "cached"} },
		"a touch policy":          func(p *wire.CreateKeyParameters) { p.OnCard = &wire.OnCard{TouchPolicy: "once"} },
		"a PIN of no card":        func(p *wire.CreateKeyParameters) { p.PIN = []byte("too long for a card") },
		"a backend that has none": func(p *wire.CreateKeyParameters) { p.Backend, p.OnCard = "memory", &wire.OnCard{} },
		"the default, likewise":   func(p *wire.CreateKeyParameters) { p.Backend, p.OnCard = "", &wire.OnCard{Slot: "9a"} },
	} {
		if got := keys.KindOf(r.call(wire.CreateKey, onCard("alice", change), nil)); got != keys.BadRequest {
			t.Errorf("%s: got kind %q, want bad-request", about, got)
		}
	}
	if n := r.store.PINTriesLeft(uint32(os.Getuid()), []byte("card:1")); n != 2 {
		t.Errorf("%d tries are left, want 2", n)
	}
}

// A card's PIN is one, and so are its tries: for making keys and for unlocking any
// of them.
func TestTriesOfACardCountTogether(t *testing.T) {
	r := newRig(t, withCards(1, 2))
	card := func(n uint32) func(*wire.CreateKeyParameters) {
		return func(p *wire.CreateKeyParameters) { p.OnCard = &wire.OnCard{Card: n} }
	}
	for i, name := range []string{"a", "b"} {
		if err := r.call(wire.CreateKey, onCard(name, card(1)), nil); err != nil {
			t.Fatal(i, err)
		}
	}
	left := func(want int) {
		t.Helper()
		if n := r.store.PINTriesLeft(uint32(os.Getuid()), []byte("card:1")); n != want {
			t.Errorf("%d tries are left, want %d", n, want)
		}
	}
	left(2)
	wrong := func(p *wire.CreateKeyParameters) { p.PIN = []byte("864213") }
	wantKind(t, r.call(wire.CreateKey, onCard("c", card(1), wrong), nil), keys.PINRequired)
	left(1)
	wantKind(t, r.call(wire.UnlockKey, wire.UnlockKeyParameters{Name: "a", PIN: []byte("864213")}, nil), keys.PINRequired)
	left(0)
	wantKind(t, r.call(wire.UnlockKey, wire.UnlockKeyParameters{Name: "b", PIN: []byte(keystest.CardPIN)}, nil), keys.PINBlocked)
	wantKind(t, r.call(wire.CreateKey, onCard("c", card(1)), nil), keys.PINBlocked)
	if err := r.call(wire.CreateKey, onCard("d", card(2)), nil); err != nil {
		t.Errorf("on another card: %v", err)
	}
}

// What has nothing to do with the PIN costs no try.
func TestOtherFailuresCostNoTry(t *testing.T) {
	r := newRig(t, withCards(1))
	slot := func(p *wire.CreateKeyParameters) { p.OnCard = &wire.OnCard{Slot: "9a"} }
	if err := r.call(wire.CreateKey, onCard("a", slot), nil); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		wantKind(t, r.call(wire.CreateKey, onCard("b", slot), nil), keys.BadRequest) // the slot is taken
	}
	if err := r.call(wire.CreateKey, onCard("b"), nil); err != nil {
		t.Error(err)
	}
}

func TestMakingAKeyAsksForTheCardsPIN(t *testing.T) {
	p := newPerson()
	r := newRig(t, withPerson(p), withCards(7))
	noPIN := func(p *wire.CreateKeyParameters) { p.PIN = nil }
	result := r.calling(t.Context(), wire.CreateKey, onCard("alice", noPIN))
	q := p.next(t)
	if s := q.subject; s.Device != "card 7" || s.Operation != "create" || s.Key != "alice" || s.Tries != 2 {
		t.Errorf("the prompt is about %+v, want the making of alice on card 7", s)
	}
	q.pin("864213")
	if q = p.next(t); q.subject.Again != "wrong PIN" || q.subject.Tries != 1 {
		t.Errorf("asked again with %+v", q.subject)
	}
	q.pin(keystest.CardPIN)
	if err := soon(t, "the key", result); err != nil {
		t.Fatal(err)
	}
	result = r.calling(t.Context(), wire.CreateKey, onCard("bob", noPIN))
	p.next(t).close()
	wantKind(t, soon(t, "the answer", result), keys.PINRequired)
	if n := len(r.store.List()); n != 1 {
		t.Errorf("there are %d keys, want 1", n)
	}
	for _, line := range r.auditLines() {
		if strings.Contains(line, keystest.CardPIN) || strings.Contains(line, "864213") {
			t.Errorf("a PIN is in the record %s", line)
		}
	}
}

func TestMakingAKeyWithNobodyToAsk(t *testing.T) {
	r := newRig(t, withCards(7))
	noPIN := func(p *wire.CreateKeyParameters) { p.PIN = nil }
	wantKind(t, r.call(wire.CreateKey, onCard("alice", noPIN), nil), keys.PINRequired)
	r.cards.Insert(8)
	err := r.call(wire.CreateKey, onCard("alice"), nil)
	wantKind(t, err, keys.BadRequest)
	if err == nil || !strings.Contains(fmt.Sprintf("%#v", err), "[7 8]") {
		t.Errorf("with two cards: %v, want their numbers", err)
	}
	r.cards.Remove(7)
	r.cards.Remove(8)
	wantKind(t, r.call(wire.CreateKey, onCard("alice"), nil), keys.DeviceAbsent)
	if n := r.store.PINTriesLeft(uint32(os.Getuid()), []byte("card:7")); n != 2 {
		t.Errorf("%d tries are left, want 2", n)
	}
}

// With a management key and no PIN policy the PIN has nothing to do.
func TestManagementKeyNeedsNoPIN(t *testing.T) {
	p := newPerson()
	r := newRig(t, withPerson(p), withCards(7))
	in := onCard("alice", func(p *wire.CreateKeyParameters) {
		p.PIN, p.OnCard = nil, &wire.OnCard{PINPolicy: "never", ManagementKey: make([]byte, 24)}
	})
	if err := r.call(wire.CreateKey, in, nil); err != nil {
		t.Fatal(err)
	}
	p.none(t)
}
