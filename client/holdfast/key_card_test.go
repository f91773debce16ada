package main

import (
	"encoding/json"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
)

// createSent is what the agent was last told to make.
func createSent(t *testing.T, agent *clienttest.Agent) (sent agentwire.CreateKeyParameters) {
	t.Helper()
	calls := agent.Calls(agentwire.CreateKey)
	if len(calls) == 0 {
		t.Fatal("no key was made")
	}
	check(t, json.Unmarshal(calls[len(calls)-1].Parameters, &sent))
	return sent
}

func TestCreateOnCard(t *testing.T) {
	agent, c := withCards(t, usedCard(t))
	p := openPTY(t)
	p.answer(t, "The PIN of card 12345678 (3 tries left): ", clienttest.CardPIN+"\n")
	p.command(t, agent.Socket).run("key", "create", "alice", "--purpose", "tls-client", "--backend", "piv", "--touch-policy", "cached", "--confirm", "process:10m").
		want(t, 0, "place         card 12345678, slot 9a\n", "PIN policy    once\n", "touch policy  cached\n", "the card has proved that it made the key",
			"once for each process and 10 minutes", "PIN wanted", "touch cached", "confirm process")
	sent := createSent(t, agent)
	if sent.Backend != "piv" || string(sent.PIN) != clienttest.CardPIN || sent.OnCard == nil || *sent.Confirm != (agentwire.Confirm{When: "process", Minutes: 10}) {
		t.Fatalf("got %+v on the wire", sent)
	}
	if on := sent.OnCard; on.Card != 12345678 || on.Slot != "" || on.TouchPolicy != "cached" || on.Overwrite || on.AllowUnattested || on.ManagementKey != nil {
		t.Errorf("got %+v on the wire", on)
	}
	c.stdin = clienttest.CardPIN
	c.run("key", "create", "bob", "--purpose", "tls-client", "--slot", "83", "--pin-policy", "never", "--allow-unattested", "--pin-fd", "0", "--card", "12345678", "--overwrite", "--yes").
		want(t, 0, "NOT ATTESTED", "note          not attested")
	if sent := createSent(t, agent); sent.Backend != "piv" || sent.OnCard.Slot != "83" || sent.OnCard.PINPolicy != "never" || !sent.OnCard.AllowUnattested || !sent.OnCard.Overwrite {
		t.Errorf("got %+v, %+v on the wire", sent, sent.OnCard)
	}
	got := c.run("key", "list")
	got.want(t, 0, "piv 12345678/9a", "piv 12345678/83", "not attested")
}

// Where the agent has cards alone, a key is made on one without being told.
func TestCreateOnlyOnCards(t *testing.T) {
	agent, c := withCards(t, clienttest.NewCard(7))
	agent.Status.Devices = []agentwire.Device{{Backend: "piv", Device: "piv", State: "ready"}}
	c.run("key", "create", "alice", "--purpose", "tls-client").want(t, 5, "the PIN is needed, and there is no terminal", "--pin-fd 3 3<FILE")
	c.stdin = clienttest.CardPIN
	c.run("key", "create", "alice", "--purpose", "tls-client", "--pin-fd", "0").want(t, 0, "card 7, slot 9a")
	if sent := createSent(t, agent); sent.Backend != "piv" || sent.OnCard.Card != 7 {
		t.Errorf("got %+v on the wire", sent)
	}
}

// A card with factory secrets gets no key, and the error comes before the PIN prompt.
func TestCreateOnFactoryCard(t *testing.T) {
	agent, _ := withCards(t, clienttest.NewFactoryCard(7))
	args := []string{"key", "create", "alice", "--purpose", "tls-client", "--backend", "piv"}
	p := openPTY(t)
	p.answer(t)
	p.command(t, agent.Socket).run(args...).want(t, 1, "card 7 still has factory defaults, which are public: PIN, PUK, management key", "hint: holdfast piv setup --card 7")
	no := false
	agent.Cards[0].DefaultPIN, agent.Cards[0].DefaultManagement = &no, nil
	p.command(t, agent.Socket).run(args...).want(t, 1, "card 7 still has factory defaults, which are public: PUK")
	if seen := p.seen.String(); seen != "" || len(agent.Calls(agentwire.CreateKey)) != 0 {
		t.Errorf("the terminal asks %q", seen)
	}
}

// A card has one PIN for all its keys, so that --pin would mean nothing.
func TestNoPINOfItsOwnOnCard(t *testing.T) {
	agent, c := withCards(t, clienttest.NewCard(7))
	args := []string{"key", "create", "alice", "--purpose", "tls-client", "--pin"}
	const want = "--pin is for keys in a TPM"
	c.run(append(args, "--backend", "piv")...).want(t, 2, want, "hint: --pin-policy says")
	c.run(append(args, "--slot", "9a")...).want(t, 2, want)
	agent.Status.Devices = []agentwire.Device{{Backend: "piv", Device: "piv", State: "ready"}}
	c.run(args...).want(t, 2, want)
}

// With the management key, the PIN is needed only for a key that requires it.
func TestCreateWithManagementKey(t *testing.T) {
	agent, c := withCards(t, clienttest.NewCard(7))
	management := strings.Repeat("0c", 24)
	fd := secrets(t, management)
	c.run("key", "create", "alice", "--purpose", "tls-client", "--management-key-fd", fd, "--pin-policy", "never").want(t, 0)
	if sent := createSent(t, agent); len(sent.PIN) != 0 || len(sent.OnCard.ManagementKey) != 24 || sent.OnCard.ManagementKey[0] != 0x0c {
		t.Errorf("got %+v, %+v on the wire", sent, sent.OnCard)
	}
	c.run("key", "create", "bob", "--purpose", "tls-client", "--management-key-fd", secrets(t, management)).want(t, 5, "the PIN is needed")
}

// A slot that is in use is overwritten after the user confirmed what is lost, and not by
// accident.
func TestOverwrite(t *testing.T) {
	agent, c := withCards(t, usedCard(t))
	args := []string{"key", "create", "new", "--purpose", "tls-client", "--slot", "9a", "--pin-fd", "0"}
	const lost = "a key (ES256) that the agent knows as alice and a certificate for CN=test CA"
	c.run(args...).want(t, 1, "slot 9a of card 12345678 holds "+lost, "hint: leave --slot out")
	args = append(args, "--overwrite")
	c.run(args...).want(t, 5, "needs confirmation", "--yes")
	p := openPTY(t)
	p.answer(t, "[y/N] ", "\n")
	p.command(t, agent.Socket).run(args...).want(t, 5, "the answer was no")
	p.waitFor(t, "Overwrite slot 9a of card 12345678? It holds "+lost+". There is no copy of the key anywhere.")
	if n := len(agent.Calls(agentwire.CreateKey)); n != 0 {
		t.Fatalf("%d keys were made without a yes", n)
	}
	p = openPTY(t)
	p.answer(t, "[y/N] ", "yes\n")
	yes := p.command(t, agent.Socket)
	yes.stdin = clienttest.CardPIN
	yes.run(args...).want(t, 0, "slot 9a")
	if sent := createSent(t, agent); !sent.OnCard.Overwrite || sent.OnCard.Slot != "9a" {
		t.Errorf("got %+v on the wire", sent.OnCard)
	}
	if got := contents(agent.Cards[0].Slots[1]); got != "a key (RS256-2048) that belongs to another user of the agent" {
		t.Errorf("got %q", got)
	}
}

func TestCardUsage(t *testing.T) {
	for line, want := range map[string]string{
		"key create a --purpose tls-client --slot 9b":                  "not a slot for keys",
		"key create a --purpose tls-client --slot f9":                  "not a slot for keys",
		"key create a --purpose tls-client --pin-policy cached":        "--pin-policy \"cached\" is not known",
		"key create a --purpose tls-client --touch-policy once":        "--touch-policy \"once\" is not known",
		"key create a --purpose tls-client --overwrite":                "--overwrite needs --slot",
		"key create a --purpose tls-client --slot 9a --backend tpm":    "are for --backend piv",
		"key create a --purpose tls-client --backend piv --persistent": "--persistent is for keys in a TPM",
		"key create a --purpose tls-client --confirm sometimes":        "--confirm \"sometimes\" is not known",
		"key create a --purpose tls-client --confirm process:10s":      "not known",
		"key create a --purpose tls-client --confirm process":          "not known",
		"key create a --purpose tls-client --confirm process:0m":       "not known",
		"key create a --purpose tls-client --confirm process:-5m":      "not known",
		"key create a --purpose tls-client --confirm once:10m":         "not known",
		"key adopt a --purpose tls-client --slot xx":                   "not a slot for keys",
		"key adopt a file --purpose tls-client --slot 9a":              "unexpected argument \"file\"",
		"key adopt a file --purpose tls-client --card 7":               "--card goes with --slot",
		"key adopt a --purpose tls-client --slot 9a --backend tpm":     "--slot is for keys on a card",
		"key adopt a --purpose tls-client":                             "FILE is missing",
		"piv":                                                          "needs a command", "piv list x": "unexpected argument", "piv setup --card x": "--card wants",
	} {
		command{socket: "/nonexistent/agent.sock"}.run(strings.Fields(line)...).want(t, exitUsage, want)
	}
}

func TestConfirm(t *testing.T) {
	agent, c := withCards(t, clienttest.NewCard(7))
	for touch, told := range map[string]bool{"always": false, "cached": true} {
		c.stdin = clienttest.CardPIN
		got := c.run("key", "create", touch, "--purpose", "tls-client", "--touch-policy", touch, "--confirm", "once", "--pin-fd", "0")
		got.want(t, 0)
		if strings.Contains(got.stderr, "note: the agent asks for confirmation on the desktop of the user of key "+touch) != told {
			t.Errorf("touch policy %s: got %q", touch, got.stderr)
		}
	}
	agent.Cards = nil
	c.run("key", "create", "a", "--purpose", "tls-client", "--confirm", "once").want(t, 0, "confirms once, until")
	c.run("key", "create", "b", "--purpose", "tls-client", "--confirm", "always").want(t, 0, "confirms each use")
	c.run("key", "create", "c", "--purpose", "tls-client", "--confirm", "process:1m").want(t, 0, "process and 1 minute\n")
	c.stdin = "-----BEGIN TSS2 PRIVATE KEY-----\n-----END TSS2 PRIVATE KEY-----\n"
	c.run("key", "adopt", "d", "-", "--purpose", "tls-client", "--confirm", "always").want(t, 0, "confirms each use")
	got := c.run("key", "list")
	got.want(t, 0, "confirm once", "confirm always", "confirm process")
}

// A key in a slot is adopted by the reference that export writes.
func TestAdoptSlot(t *testing.T) {
	card := usedCard(t)
	agent, c := withCards(t, card)
	c.stdin = clienttest.CardPIN
	c.run("key", "adopt", "alice", "--slot", "9a", "--purpose", "tls-client", "--allow-imported", "--pin-fd", "0").want(t, 0, "imported")
	p := openPTY(t)
	p.answer(t, "The PIN of card 12345678 (3 tries left): ", clienttest.CardPIN+"\n")
	p.command(t, agent.Socket).run("key", "adopt", "bob", "--slot", "82", "--card", "12345678", "--purpose", "tls-client").want(t, 0, "bob")
	for i, slot := range []string{"9a", "82"} {
		var sent, again agentwire.AdoptKeyParameters
		check(t, json.Unmarshal(agent.Calls(agentwire.AdoptKey)[i].Parameters, &sent))
		block, rest := pem.Decode([]byte(sent.File))
		if block == nil || len(rest) != 0 || block.Type != "HOLDFAST PIV KEY" || block.Headers["Card"] != "12345678" || block.Headers["Slot"] != slot || len(block.Headers) != 2 {
			t.Fatalf("slot %s: got file %q", slot, sent.File)
		}
		if !slices.Equal(block.Bytes, card.Slots[0].PublicKey) || sent.Backend != "piv" || sent.AllowImported != (i == 0) || string(sent.PIN) != clienttest.CardPIN {
			t.Errorf("slot %s: got %+v on the wire", slot, sent)
		}
		c.run("key", "adopt", "again"+slot, file(t, []byte(sent.File)), "--purpose", "tls-client", "--pin-fd", "0").want(t, 0)
		check(t, json.Unmarshal(agent.Calls(agentwire.AdoptKey)[2+i].Parameters, &again))
		if again.Backend != "piv" || again.File != sent.File || string(again.PIN) != clienttest.CardPIN {
			t.Errorf("slot %s from a file: got %+v on the wire", slot, again)
		}
	}
	c.run("key", "adopt", "carol", "--slot", "9d", "--purpose", "tls-client").want(t, 1, "slot 9d of card 12345678 is empty", "holdfast piv list")
	c.run("key", "adopt", "carol", "--slot", "9c", "--purpose", "tls-client").want(t, 1, "does not tell which key is in slot 9c", "put its certificate")
}

// Whose PIN is wanted is looked at first, and a wrong one has a next step.
func TestAdoptPIN(t *testing.T) {
	agent, c := withCards(t, usedCard(t))
	args := []string{"key", "adopt", "alice", "--slot", "9a", "--purpose", "tls-client"}
	c.run(args...).want(t, 5, "the PIN is needed, and there is no terminal", "--pin-fd 3 3<FILE")
	c.stdin = "12345"
	c.run(append(args, "--pin-fd", "0")...).want(t, 1, "the PIN is too short")
	c.stdin = "135799"
	agent.Fail(agentwire.AdoptKey, &fault.Error{Kind: fault.PINRequired, Message: "the PIN is wrong"})
	c.run(append(args, "--pin-fd", "0")...).want(t, 5, "the PIN is wrong", "hint: try again; holdfast piv unblock")
	cardTries(agent, 1)
	c.run(args...).want(t, 5, "one try of its PIN left", "holdfast piv unblock")
	if n := len(agent.Calls(agentwire.AdoptKey)); n != 1 {
		t.Errorf("%d PINs were sent, want 1", n)
	}
	reference := "-----BEGIN HOLDFAST PIV KEY-----\nCard: 8\n\nAA==\n-----END HOLDFAST PIV KEY-----\n"
	c.run("key", "adopt", "alice", file(t, []byte(reference)), "--purpose", "tls-client").want(t, 1, "card 8 is in no reader")
	c.stdin = "-----BEGIN TSS2 PRIVATE KEY-----\n-----END TSS2 PRIVATE KEY-----\n"
	c.run("key", "adopt", "alice", "-", "--purpose", "tls-client", "--pin-fd", "0").want(t, 2, "--pin-fd is for keys on a card")
}

// Enrolling a new key on a card asks for the card's PIN.
func TestEnrollOnCard(t *testing.T) {
	c := withCluster(t)
	c.agent.Cards = []agentwire.Card{clienttest.NewCard(7)}
	args := []string{"enroll", "kubernetes", "prod", "--key", "alice", "--create", "--backend", "piv", "--kubeconfig", c.kubeconfig, "--context", "admin"}
	c.run(args...).want(t, 5, "the PIN is needed, and there is no terminal", "hint: run it in a terminal, or make the key before: holdfast key create takes --pin-fd\n")
	p := openPTY(t)
	p.answer(t, "The PIN of card 7 (3 tries left): ", clienttest.CardPIN+"\n")
	p.command(t, c.socket).run(args...).want(t, 0)
	if sent := createSent(t, c.agent); sent.Backend != "piv" || sent.OnCard.Card != 7 || string(sent.PIN) != clienttest.CardPIN {
		t.Errorf("got %+v on the wire", sent)
	}
}

func FuzzParseConfirm(f *testing.F) {
	for _, seed := range []string{"", "once", "always", "process:10m", "process:1h", "process:0m", "process:90s", "once:", ":", "process:1e9h"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseConfirm(text)
		switch {
		case err != nil && c != nil, err == nil && c == nil && text != "":
			t.Errorf("%q: got %v, %v", text, c, err)
		case c == nil:
		case c.When == "process" && c.Minutes < 1, c.When != "process" && (c.Minutes != 0 || c.When != text):
			t.Errorf("%q: got %+v", text, *c)
		}
	})
}
