package agent_test

import (
	"encoding/pem"
	"strings"
	"testing"

	"holdfast/agent"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys/keystest"
	"holdfast/internal/policy"
)

// cardMachine is a machine's agent with a card, on which bob has a key.
func cardMachine(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, system, withCards(1), func(r *rig) {
		r.policy = func() (*policy.Policy, error) {
			return policy.Parse("policy.yaml", []byte("version: 1\nrules:\n- allow: [all]\n  anyone: true\n  owner: self\n- allow: [manage-cards]\n  uids: [41001, 41002]\n"))
		}
	})
	answer := r.as(bob, r.socket, agentwire.CreateKey, onCard("bob", inSlot("9a")))
	if answer.Error != "" {
		t.Fatal(answer.Message)
	}
	return r
}

func inSlot(slot string) func(*agentwire.CreateKeyParameters) {
	return func(p *agentwire.CreateKeyParameters) { p.OnCard = &agentwire.OnCard{Slot: slot, Overwrite: true} }
}

// No user can overwrite or adopt the key in another user's slot until the owner deletes
// the key.
func TestSlotsOfOthersStayTheirs(t *testing.T) {
	r := cardMachine(t)
	file, err := r.cards.Export(r.store.List()[0].Material)
	if err != nil {
		t.Fatal(err)
	}
	adopt := agentwire.AdoptKeyParameters{Name: "mine", Purpose: "tls-client", File: string(file), Backend: "piv", PIN: []byte(keystest.CardPIN)}
	for method, in := range map[string]any{agentwire.CreateKey: onCard("mine", inSlot("9a")), agentwire.AdoptKey: adopt} {
		if a := r.as(alice, r.socket, method, in); !strings.Contains(a.Message, "slot 9a of card 1 holds a key of this agent") || !strings.Contains(a.Error, "Denied") {
			t.Errorf("%s: got %+v", method, a)
		}
	}
	if n := len(r.store.List()); n != 1 {
		t.Fatalf("there are %d keys, want 1", n)
	}
	if a := r.as(bob, r.socket, agentwire.DeleteKey, agentwire.NameParameters{Name: "bob"}); a.Error != "" {
		t.Fatal(a.Message)
	}
	if a := r.as(alice, r.socket, agentwire.AdoptKey, adopt); a.Error != "" {
		t.Errorf("after its owner deleted it: %+v", a)
	}
	if r.agent.Claims() != 0 {
		t.Error("a slot is still claimed")
	}
}

// A caller that has no key on a card spends none of its tries.
func TestStrangersSpendNoTriesOfACard(t *testing.T) {
	r := cardMachine(t)
	file, err := r.cards.Export(r.store.List()[0].Material)
	if err != nil {
		t.Fatal(err)
	}
	wrong := func(p *agentwire.CreateKeyParameters) { p.PIN = []byte("864213") }
	for method, in := range map[string]any{
		agentwire.CreateKey: onCard("eve", wrong),
		agentwire.AdoptKey:  agentwire.AdoptKeyParameters{Name: "eve", Purpose: "tls-client", File: string(file), Backend: "piv", PIN: []byte("864213")},
	} {
		if a := r.as(41003, r.socket, method, in); !strings.Contains(a.Message, "may not manage cards") {
			t.Errorf("%s: got %+v", method, a)
		}
	}
	if n := r.triesOf(1); n != 3 {
		t.Errorf("%d tries are left, want 3", n)
	}
	if err := r.restartWith(func() (*policy.Policy, error) {
		return policy.Parse("policy.yaml", []byte("version: 1\nrules:\n- allow: [all]\n  anyone: true\n  owner: self\n"))
	}); err != nil {
		t.Fatal(err)
	}
	if a := r.as(bob, r.socket, agentwire.CreateKey, onCard("second")); a.Error != "" {
		t.Errorf("a caller that has a key on the card: %+v", a)
	}
}

func (r *rig) restartWith(p func() (*policy.Policy, error)) error {
	r.policy = p
	return r.agent.Reload(r.t.Context())
}

// Adopting a key takes its card's PIN; to know where the key is, is not enough.
func TestAdoptingTakesTheCardsPIN(t *testing.T) {
	p := newPerson()
	r := newRig(t, withPerson(p), withCards(1))
	r.createOnCard(p, "a", agentwire.OnCard{PINPolicy: "never"}) // so that nothing but adopting it takes a PIN
	file, err := r.cards.Export(r.store.List()[0].Material)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.call(agentwire.DeleteKey, agentwire.NameParameters{Name: "a"}, nil); err != nil {
		t.Fatal(err)
	}
	adopt := agentwire.AdoptKeyParameters{Name: "b", Purpose: "tls-client", File: string(file), Backend: "piv", PIN: []byte("864213")}
	wantKind(t, r.call(agentwire.AdoptKey, adopt, nil), fault.PINRequired)
	adopt.PIN = nil
	result := r.calling(t.Context(), agentwire.AdoptKey, adopt)
	q := p.next(t)
	if s := q.subject; s.Operation != "adopt" || s.Device != "card 1" || s.Tries != 1 {
		t.Errorf("the prompt is about %+v", s)
	}
	q.pin(keystest.CardPIN)
	if err := soon(t, "the key", result); err != nil {
		t.Error(err)
	}
	adopt.Backend, adopt.PIN = "memory", []byte(keystest.CardPIN)
	adopt.Name = "c"
	wantKind(t, r.call(agentwire.AdoptKey, adopt, nil), fault.BadRequest)
}

// A new key that cannot be finished stays on its card, and the answer says where.
func TestLeftoverIsNamed(t *testing.T) {
	p := newPerson()
	r := newRig(t, withPerson(p), withCards(1))
	in := onCard("alice", func(p *agentwire.CreateKeyParameters) {
		p.OnCard = &agentwire.OnCard{Slot: "90", TouchPolicy: "always"}
	})
	result := r.calling(t.Context(), agentwire.CreateKey, in)
	for range 2 { // it is asked for once more
		r.cards.WaitTouch(1)
		soon(t, "the notice", p.touches)
		r.cards.NoTouch(1)
	}
	err := soon(t, "the answer", result)
	wantKind(t, err, fault.TouchTimeout)
	if e, _ := fault.AsError(err); e == nil || e.Hint != "a new key is in slot 90 of card 1: `holdfast key adopt alice --slot 90 --card 1`" {
		t.Errorf("got %#v, want where the key is", err)
	}
	if n := len(r.store.List()); n != 0 {
		t.Errorf("there are %d keys, want none", n)
	}
	in = onCard("bob", func(p *agentwire.CreateKeyParameters) {
		p.OnCard = &agentwire.OnCard{Slot: "91", TouchPolicy: "always"}
	})
	result = r.calling(t.Context(), agentwire.CreateKey, in)
	r.cards.WaitTouch(1)
	r.cards.NoTouch(1)
	r.cards.WaitTouch(1)
	r.cards.Touch(1)
	if err := soon(t, "the key", result); err != nil {
		t.Errorf("touched the second time: %v", err)
	}
}

func FuzzCardOf(f *testing.F) {
	block := func(kind, card string) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Headers: map[string]string{"Card": card, "Slot": "9a"}, Bytes: []byte{1}})
	}
	seeds := map[string]uint32{"12": 12, "0": 0, "4294967295": 4294967295, "4294967296": 0, "-1": 0, "": 0}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for card, want := range seeds {
		f.Add(block("HOLDFAST PIV KEY", card))
		if got := agent.CardOf(block("HOLDFAST PIV KEY", card)); got != want {
			f.Errorf("card %q is %d, want %d", card, got, want)
		}
	}
	f.Add([]byte("no PEM"))
	f.Fuzz(func(t *testing.T, file []byte) {
		if n := agent.CardOf(file); n != 0 && !strings.Contains(string(file), "HOLDFAST PIV KEY") {
			t.Errorf("card %d from %q", n, file)
		}
	})
}
