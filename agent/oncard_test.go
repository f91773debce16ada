package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys/keystest"
)

// onCard is a request for a key on the only card, with the card's PIN.
func onCard(name string, change ...func(*agentwire.CreateKeyParameters)) agentwire.CreateKeyParameters {
	p := agentwire.CreateKeyParameters{Name: name, Purpose: "tls-client", Backend: "piv", PIN: []byte(keystest.CardPIN)}
	for _, c := range change {
		c(&p)
	}
	return p
}

func TestKeyOnCardIsShownWithItsPlace(t *testing.T) {
	r := newRig(t, withCards(12))
	for name, c := range map[string]struct {
		on   *agentwire.OnCard
		pin  bool
		want agentwire.Place
	}{
		"plain":  {nil, true, agentwire.Place{Card: 12, Slot: "9a", PINPolicy: "once", TouchPolicy: "never", Attested: true}},
		"always": {&agentwire.OnCard{Card: 12, Slot: "82", PINPolicy: "always"}, true, agentwire.Place{Card: 12, Slot: "82", PINPolicy: "always", TouchPolicy: "never", Attested: true}},
		"never":  {&agentwire.OnCard{Slot: "83", PINPolicy: "never"}, false, agentwire.Place{Card: 12, Slot: "83", PINPolicy: "never", TouchPolicy: "never", Attested: true}},
	} {
		var reply agentwire.KeyReply
		if err := r.call(agentwire.CreateKey, onCard(name, func(p *agentwire.CreateKeyParameters) { p.OnCard = c.on }), &reply); err != nil {
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
	wantKind(t, err, fault.PINRequired)
}

func TestBadPlacesAreRefused(t *testing.T) {
	r := newRig(t, withCards(1))
	for about, change := range map[string]func(*agentwire.CreateKeyParameters){
		"a slot for nothing":      func(p *agentwire.CreateKeyParameters) { p.OnCard = &agentwire.OnCard{Slot: "9b"} },
		"a PIN policy":            func(p *agentwire.CreateKeyParameters) { p.OnCard = &agentwire.OnCard{PINPolicy: "cached"} },
		"a touch policy":          func(p *agentwire.CreateKeyParameters) { p.OnCard = &agentwire.OnCard{TouchPolicy: "once"} },
		"a PIN of no card":        func(p *agentwire.CreateKeyParameters) { p.PIN = []byte("too long for a card") },
		"a backend that has none": func(p *agentwire.CreateKeyParameters) { p.Backend, p.OnCard = "memory", &agentwire.OnCard{} },
		"the default, likewise":   func(p *agentwire.CreateKeyParameters) { p.Backend, p.OnCard = "", &agentwire.OnCard{Slot: "9a"} },
	} {
		if got := fault.KindOf(r.call(agentwire.CreateKey, onCard("alice", change), nil)); got != fault.BadRequest {
			t.Errorf("%s: got kind %q, want bad-request", about, got)
		}
	}
	if n := r.triesOf(1); n != 3 {
		t.Errorf("%d tries are left, want 3", n)
	}
}

// A card counts its tries. The agent counts none beside them, and rejects no right PIN
// or PUK.
func TestACardCountsItsOwnTries(t *testing.T) {
	r := newRig(t, withCards(1))
	if err := r.call(agentwire.CreateKey, onCard("a"), nil); err != nil {
		t.Fatal(err)
	}
	wrong := []byte("864213")
	for range 4 { // two at a time, and the right one: more than a TPM's in an hour
		for range 2 {
			wantKind(t, r.call(agentwire.UnlockKey, agentwire.UnlockKeyParameters{Name: "a", PIN: wrong}, nil), fault.PINRequired)
		}
		if err := r.call(agentwire.UnlockKey, agentwire.UnlockKeyParameters{Name: "a", PIN: []byte(keystest.CardPIN)}, nil); err != nil {
			t.Fatalf("the right PIN: %v", err)
		}
	}
	for range 3 {
		wantKind(t, r.call(agentwire.CreateKey, onCard("c", func(p *agentwire.CreateKeyParameters) { p.PIN = wrong }), nil), fault.PINRequired)
	}
	for range 6 {
		wantKind(t, r.call(agentwire.UnblockCard, agentwire.UnblockCardParameters{Card: 1, PUK: wrong, PIN: wrong}, nil), fault.PINRequired)
	}
	in := agentwire.UnblockCardParameters{Card: 1, PUK: []byte(keystest.CardPUK), PIN: []byte(keystest.CardPIN)}
	if err := r.call(agentwire.UnblockCard, in, nil); err != nil {
		t.Errorf("the right PUK: %v", err)
	}
	if err := r.call(agentwire.CreateKey, onCard("c"), nil); err != nil {
		t.Errorf("the right PIN: %v", err)
	}
	if n := r.metrics()["pin_tries_total piv pin-required"].Value; n != 8 {
		t.Errorf("%v wrong PINs of keys are counted, want 8", n)
	}
}

// A prompt shows the card's own number of tries, without the last one.
func TestPromptForACardShowsTheCardsTries(t *testing.T) {
	p := newPerson()
	r := newRig(t, withPerson(p), withCards(1))
	r.createOnCard(p, "a", agentwire.OnCard{})
	result := r.signing(t.Context(), "a")
	q := p.next(t)
	if q.subject.Tries != 2 || q.subject.Again != "" {
		t.Errorf("the prompt says %d tries and %q, want 2", q.subject.Tries, q.subject.Again)
	}
	q.pin("864213")
	if q = p.next(t); q.subject.Tries != 1 || q.subject.Again != "wrong PIN" {
		t.Errorf("asked again with %d tries and %q, want 1 and wrong PIN", q.subject.Tries, q.subject.Again)
	}
	q.pin("864213")
	err := soon(t, "the answer", result)
	wantKind(t, err, fault.PINBlocked)
	if e, _ := fault.AsError(err); e == nil || !strings.Contains(e.Advice(), "holdfast piv unblock") {
		t.Errorf("got %v, want a hint of the PUK", err)
	}
	wantKind(t, soon(t, "the answer", r.signing(t.Context(), "a")), fault.PINBlocked)
	notAPIN := func(p *agentwire.CreateKeyParameters) { p.PIN = nil }
	wantKind(t, soon(t, "the answer", r.calling(t.Context(), agentwire.CreateKey, onCard("b", notAPIN))), fault.PINBlocked)
	p.none(t)
	if n := r.triesOf(1); n != 1 {
		t.Errorf("%d tries are left, want the last one", n)
	}
}

// A request waits for a card that waits for a touch, or that another program holds, as
// long as the caller waits, and returns what the card says then.
func TestPromptWaitsForTheCard(t *testing.T) {
	p := newPerson()
	r := newRig(t, withPerson(p), withCards(1), func(r *rig) { r.options.Limits.Request = 300 * time.Millisecond })
	r.createOnCard(p, "a", agentwire.OnCard{})
	release := r.cards.Card(1).Block()
	err := soon(t, "the answer", r.signing(t.Context(), "a"))
	release()
	wantKind(t, err, fault.Deadline)
	if err == nil || strings.Contains(err.Error(), "prompt") {
		t.Errorf("got %v, and nothing was shown", err)
	}
	p.none(t)
}

// triesOf returns how many wrong PINs a card still takes.
func (r *rig) triesOf(serial uint32) int {
	r.t.Helper()
	all, err := r.cards.Cards(r.t.Context())
	for _, c := range all {
		if c.Serial == serial {
			return *c.PINTries
		}
	}
	r.t.Fatalf("there is no card %d: %v", serial, err)
	return 0
}

// A failure that does not concern the PIN costs no try.
func TestOtherFailuresCostNoTry(t *testing.T) {
	r := newRig(t, withCards(1))
	slot := func(p *agentwire.CreateKeyParameters) { p.OnCard = &agentwire.OnCard{Slot: "9a"} }
	if err := r.call(agentwire.CreateKey, onCard("a", slot), nil); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		wantKind(t, r.call(agentwire.CreateKey, onCard("b", slot), nil), fault.Denied) // the slot is taken
	}
	if err := r.call(agentwire.CreateKey, onCard("b"), nil); err != nil {
		t.Error(err)
	}
}

func TestMakingAKeyAsksForTheCardsPIN(t *testing.T) {
	p := newPerson()
	r := newRig(t, withPerson(p), withCards(7))
	notAPIN := func(p *agentwire.CreateKeyParameters) { p.PIN = nil }
	result := r.calling(t.Context(), agentwire.CreateKey, onCard("alice", notAPIN))
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
	result = r.calling(t.Context(), agentwire.CreateKey, onCard("bob", notAPIN))
	p.next(t).close()
	wantKind(t, soon(t, "the answer", result), fault.PINRequired)
	if n := len(r.store.List()); n != 1 {
		t.Errorf("there are %d keys, want 1", n)
	}
	for _, line := range r.auditLines() {
		if strings.Contains(line, keystest.CardPIN) || strings.Contains(line, "864213") {
			t.Errorf("a PIN is in the record %s", line)
		}
	}
}

func TestMakingAKeyWithoutAPrompt(t *testing.T) {
	r := newRig(t, withCards(7))
	notAPIN := func(p *agentwire.CreateKeyParameters) { p.PIN = nil }
	wantKind(t, r.call(agentwire.CreateKey, onCard("alice", notAPIN), nil), fault.PINRequired)
	r.cards.Insert(8)
	err := r.call(agentwire.CreateKey, onCard("alice"), nil)
	wantKind(t, err, fault.BadRequest)
	if err == nil || !strings.Contains(fmt.Sprintf("%#v", err), "[7 8]") {
		t.Errorf("with two cards: %v, want their numbers", err)
	}
	r.cards.Remove(7)
	r.cards.Remove(8)
	wantKind(t, r.call(agentwire.CreateKey, onCard("alice"), nil), fault.DeviceAbsent)
	r.cards.Insert(7)
	if n := r.triesOf(7); n != 3 {
		t.Errorf("%d tries are left, want 3", n)
	}
}

// With a management key, a key whose PIN policy is never is made without the PIN.
func TestManagementKeyNeedsNoPIN(t *testing.T) {
	p := newPerson()
	r := newRig(t, withPerson(p), withCards(7))
	in := onCard("alice", func(p *agentwire.CreateKeyParameters) {
		p.PIN, p.OnCard = nil, &agentwire.OnCard{PINPolicy: "never", ManagementKey: make([]byte, 24)}
	})
	if err := r.call(agentwire.CreateKey, in, nil); err != nil {
		t.Fatal(err)
	}
	p.none(t)
}
