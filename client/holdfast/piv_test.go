package main

import (
	"encoding/json"
	"strings"
	"testing"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
)

// withCards starts a stand-in agent with cards.
func withCards(t *testing.T, cards ...agentwire.Card) (*clienttest.Agent, command) {
	t.Helper()
	agent := clienttest.Start(t)
	agent.Cards = cards
	return agent, command{socket: agent.Socket}
}

// usedCard is a card with things in its slots.
func usedCard(t *testing.T) agentwire.Card {
	t.Helper()
	ca, yes, no := clienttest.NewCA(t), true, false
	card := clienttest.NewCard(12345678)
	card.Slots = []agentwire.CardSlot{
		{Slot: "9a", Algorithm: "ES256", PINPolicy: "once", TouchPolicy: "never", Generated: &yes, Key: "alice", Taken: true,
			PublicKey: ca.Certificate.RawSubjectPublicKeyInfo, Certificate: ca.Certificate.Raw},
		{Slot: "9c", Algorithm: "RS256", RSABits: 2048, PINPolicy: "always", TouchPolicy: "always", Generated: &no, Taken: true},
		{Slot: "82", Certificate: ca.Certificate.Raw},
		{Slot: "83", Certificate: []byte{1}},
	}
	return card
}

func TestPIVList(t *testing.T) {
	card := usedCard(t)
	card.Notes = []agentwire.Notice{{Message: "it has a flaw", Hint: "replace it"}}
	one, zero := 1, 0
	card.PINTries, card.PUKTries = &one, &zero
	_, c := withCards(t, card, clienttest.NewFactoryCard(7), agentwire.Card{
		Reader: "Reader 2", State: "busy", Reason: "scdaemon uses it", Hint: "end it", Notes: []agentwire.Notice{}, Slots: []agentwire.CardSlot{},
	})
	got := c.run("piv", "list")
	got.want(t, 0, "card         12345678", "Yubico YubiKey CCID 08 00", "firmware     5.7.1", "1 try left\n", "blocked\n",
		"kept on the card, where the PIN opens it", "it proves which keys it made", "note         it has a flaw", "hint: replace it",
		"9a    ES256       alice             once    never   on the card  CN=test CA\n",
		"9c    RS256-2048  (another user's)  always  always  elsewhere    none\n",
		"82    -           -                 -       -       -            CN=test CA\n", "damaged\n",
		"3 tries left, still the factory's", "the factory default, which is public", "slots        all empty",
		"reader  Reader 2\nstate   busy: scdaemon uses it\n        hint: end it\n")
	var cards []agentwire.Card
	check(t, json.Unmarshal([]byte(c.run("piv", "list", "--json").stdout), &cards))
	if len(cards) != 3 || cards[0].Slots[0].Key != "alice" || cards[2].Reason != "scdaemon uses it" {
		t.Errorf("--json: got %+v", cards)
	}
}

func TestPIVListOfUnknowns(t *testing.T) {
	card := clienttest.NewCard(7)
	card.DefaultPIN, card.DefaultPUK, card.DefaultManagement, card.PUKTries, card.Attests, card.ProtectedManagement = nil, nil, nil, nil, nil, false
	agent, c := withCards(t, card)
	got := c.run("piv", "list")
	got.want(t, 0, "PIN         3 tries left\n", "PUK         tries left unknown\n", "a key that is not kept on the card")
	if strings.Contains(got.stdout, "attestation") {
		t.Errorf("got %q, with something on attestation, of which nothing is known", got.stdout)
	}
	agent.Cards = nil
	if got := c.run("piv", "list"); got.code != 0 || got.stdout != "" || !strings.Contains(got.stderr, "no card in any reader; holdfast doctor") {
		t.Errorf("without cards: got %+v", got)
	}
	if got := c.run("piv", "list", "--json"); strings.TrimSpace(got.stdout) != "[]" {
		t.Errorf("without cards: got %q", got.stdout)
	}
	agent.Fail(agentwire.ListCards, &fault.Error{Kind: fault.DeviceAbsent, Message: "pcscd does not run", Hint: "start it"})
	c.run("piv", "list").want(t, 1, "error: pcscd does not run", "hint: start it")
}

// A command that needs one card finds it, or says what there is.
func TestPickCard(t *testing.T) {
	a, b := clienttest.NewCard(7), clienttest.NewCard(8)
	busy := agentwire.Card{Serial: 9, Reader: "R", State: "busy", Reason: "scdaemon uses it"}
	empty := agentwire.Card{Reader: "R 2", State: "absent", Reason: "no card is in it", Hint: "insert one"}
	tests := map[string]struct {
		cards  []agentwire.Card
		serial uint32
		want   uint32
		code   int
		text   string
	}{
		"the only one":         {[]agentwire.Card{a}, 0, 7, 0, ""},
		"locked":               {[]agentwire.Card{{Serial: 7, State: "locked", Reason: "its PIN is blocked"}}, 0, 7, 0, ""},
		"beside a reader":      {[]agentwire.Card{empty, a}, 0, 7, 0, ""},
		"by its number":        {[]agentwire.Card{a, b}, 8, 8, 0, ""},
		"which of two":         {[]agentwire.Card{a, b}, 0, 0, exitUsage, "several cards: 7, 8"},
		"another":              {[]agentwire.Card{a, b}, 6, 0, exitFailed, "card 6 is in no reader"},
		"none":                 {nil, 0, 0, exitFailed, "no card in any reader"},
		"an empty reader":      {[]agentwire.Card{empty}, 0, 0, exitFailed, "reader R 2 is absent: no card is in it"},
		"in use":               {[]agentwire.Card{busy}, 0, 9, exitFailed, "card 9 is busy: scdaemon uses it"},
		"in use, by number":    {[]agentwire.Card{busy, a}, 9, 9, exitFailed, "card 9 is busy"},
		"in use, and the only": {[]agentwire.Card{busy, empty}, 9, 9, exitFailed, "card 9 is busy"},
	}
	for name, test := range tests {
		got, err := pickCard(test.cards, test.serial)
		if got.Serial != test.want {
			t.Errorf("%s: got card %d, want %d", name, got.Serial, test.want)
		}
		if err == nil && test.code != 0 {
			t.Errorf("%s: no error, want %q", name, test.text)
		}
		if err != nil {
			if p := explain(err); p.code != test.code || !strings.Contains(p.message, test.text) || p.hint == "" {
				t.Errorf("%s: got %+v, want code %d and %q", name, p, test.code, test.text)
			}
		}
	}
}

func TestPIVCompletion(t *testing.T) {
	_, c := withCards(t, clienttest.NewCard(7), agentwire.Card{Reader: "R", State: "absent", Notes: []agentwire.Notice{}, Slots: []agentwire.CardSlot{}})
	c.run("__complete", "piv", "setup", "--card", "").want(t, 0, "7\tYubico YubiKey CCID 07 00\n:4\n")
	c.run("__complete", "key", "create", "x", "--slot", "").want(t, 0, "82\n83\n", "95\n9a\n9c\n9d\n9e\n")
	c.run("__complete", "key", "create", "x", "--pin-policy", "").want(t, 0, "never\nonce\nalways\n")
	c.run("__complete", "key", "create", "x", "--touch-policy", "").want(t, 0, "never\nalways\ncached\n")
	c.run("__complete", "key", "adopt", "x", "--confirm", "").want(t, 0, "process:10m\n")
	c.run("__complete", "key", "create", "x", "--backend", "").want(t, 0, "tpm\npiv\n")
}
