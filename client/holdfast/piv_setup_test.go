package main

import (
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
)

// setUpSent is what the agent was last told to set a card up with.
func setUpSent(t *testing.T, agent *clienttest.Agent) (sent agentwire.SetUpCardParameters) {
	t.Helper()
	calls := agent.Calls(agentwire.SetUpCard)
	if len(calls) == 0 {
		t.Fatal("no card was set up")
	}
	check(t, json.Unmarshal(calls[len(calls)-1].Parameters, &sent))
	return sent
}

// A new card: the user confirms, chooses PIN and PUK, and is not asked for the factory
// secrets.
func TestSetUpNewCard(t *testing.T) {
	card := clienttest.NewFactoryCard(7)
	card.Notes = []agentwire.Notice{{Message: "the PIN is the factory's", Hint: "holdfast piv setup --card 7", Next: &fault.Next{Do: fault.SetUpCard, Card: 7}}, {Message: "it has a flaw", Hint: "replace it"}}
	agent, _ := withCards(t, card)
	p := openPTY(t)
	p.answer(t, "Replace them on card 7? [y/N] ", "y\n",
		"The new PIN (6 to 8 digits, letters or signs): ", "246810\n", "The same again: ", "246810\n",
		"The new PUK (6 to 8 digits, letters or signs): ", "97531086\n", "The same again: ", "97531086\n")
	got := p.command(t, agent.Socket).run("piv", "setup")
	got.want(t, 0, "card 7 has a new PIN, PUK and management key")
	if strings.Contains(got.stderr, "hint: holdfast piv setup") {
		t.Errorf("got %q, with a hint to do what is being done", got.stderr)
	}
	for _, text := range []string{
		"The PIN is what you type", "write the PUK down and keep it elsewhere", "The management key lets programs", "it has a flaw",
		"note: next: holdfast key create NAME --backend piv ", "card         7", "still the factory's", "This will be replaced on card 7:", "PIN             the factory's  one that you choose\n",
		"management key  the factory's  a random one, kept on the card, where the PIN opens it\n",
		"Programs that use the factory's management key can no longer make keys on it; ykman asks for the PIN instead.\n",
		"Keys and certificates in its slots stay as they are.",
	} {
		if !strings.Contains(got.stderr, text) {
			t.Errorf("got %q, want it to say %q before it asks", got.stderr, text)
		}
	}
	sent := setUpSent(t, agent)
	if sent.Card != 7 || string(sent.PIN) != "246810" || string(sent.PUK) != "97531086" || sent.OldPIN != nil || sent.OldPUK != nil || sent.OldManagementKey != nil {
		t.Errorf("got %+v on the wire", sent)
	}
	p.waitFor(t, "again: \r\n")
	if seen := p.seen.String(); strings.Contains(seen, "246810") || strings.Contains(seen, "97531086") {
		t.Errorf("the terminal shows a secret: %q", seen)
	}
}

// Nothing is asked or sent without a confirmation.
func TestSetUpRefused(t *testing.T) {
	agent, c := withCards(t, clienttest.NewFactoryCard(7))
	p := openPTY(t)
	p.answer(t, "[y/N] ", "n\n")
	p.command(t, agent.Socket).run("piv", "setup").want(t, 5, "the answer was no")
	c.run("piv", "setup").want(t, 5, "needs confirmation", "hint: --yes")
	c.run("piv", "setup", "--yes").want(t, 5, "the new PIN is needed, and there is no terminal", "--pin-fd 3 3<FILE")
	if n := len(agent.Calls(agentwire.SetUpCard)); n != 0 {
		t.Errorf("the card was set up %d times", n)
	}
}

// A card that was set up before: its PIN and PUK are asked for. The management key
// is not where the PIN opens it, and is kept elsewhere.
func TestSetUpAgain(t *testing.T) {
	agent, _ := withCards(t, clienttest.NewCard(7))
	old := []string{
		"[y/N] ", "yes\n", "The old PIN of card 7 (3 tries left): ", clienttest.CardPIN + "\n", "The old PUK of card 7 (3 tries left): ", clienttest.CardPUK + "\n",
	}
	fresh := []string{"PIN (6 to 8 digits, letters or signs): ", "864209\n", "again: ", "864209\n"}
	p := openPTY(t)
	p.answer(t, append(old, fresh...)...)
	got := p.command(t, agent.Socket).run("piv", "setup", "--generate-puk")
	got.want(t, 0, "PUK of card 7: ", "card 7 has a new PIN")
	if !strings.Contains(got.stderr, "PUK             set before  a random one, which is printed once\n") || !strings.Contains(got.stderr, "ykman works as before") {
		t.Errorf("got %q", got.stderr)
	}
	sent := setUpSent(t, agent)
	puk := regexp.MustCompile(`PUK of card 7: (\d{8})\n`).FindStringSubmatch(got.stdout)
	if puk == nil || string(sent.PUK) != puk[1] || string(sent.OldPIN) != clienttest.CardPIN || string(sent.OldPUK) != clienttest.CardPUK || sent.OldManagementKey != nil {
		t.Errorf("got %+v on the wire, and told the person %q", sent, got.stdout)
	}

	agent.Cards[0].ProtectedManagement = false
	management := strings.Repeat("0a", 24)
	p = openPTY(t)
	p.answer(t, append(append(old, "The management key now, in hex (nothing: the factory's): ", management+"\n"), fresh...)...)
	p.command(t, agent.Socket).run("piv", "setup", "--generate-puk").want(t, 0)
	if sent := setUpSent(t, agent); hex.EncodeToString(sent.OldManagementKey) != management {
		t.Errorf("got management key %x", sent.OldManagementKey)
	}
}

// A card that cannot tell what is the factory's: the user can, by entering nothing.
func TestSetUpUnknown(t *testing.T) {
	card := clienttest.NewCard(7)
	card.DefaultPIN, card.DefaultPUK, card.DefaultManagement, card.ProtectedManagement = nil, nil, nil, false
	agent, _ := withCards(t, card)
	p := openPTY(t)
	p.answer(t, "The old PIN of card 7 (3 tries left) (nothing: the factory's 123456): ", clienttest.CardPIN+"\n",
		"The old PUK of card 7 (3 tries left) (nothing: the factory's 12345678): ", "\n",
		"The management key now, in hex (nothing: the factory's): ", "\n",
		"signs): ", "864209\n", "again: ", "864209\n")
	got := p.command(t, agent.Socket).run("piv", "setup", "--yes", "--generate-puk")
	got.want(t, 0)
	if !strings.Contains(got.stderr, "PIN             not known  one that you choose\n") || !strings.Contains(got.stderr, "Programs that use its present management key") {
		t.Errorf("got %q", got.stderr)
	}
	sent := setUpSent(t, agent)
	if string(sent.OldPIN) != clienttest.CardPIN || string(sent.OldPUK) != "12345678" || hex.EncodeToString(sent.OldManagementKey) != strings.Repeat("0102030405060708", 3) {
		t.Errorf("got %+v on the wire", sent)
	}
}

// An old PIN that cannot be one is not sent, also where the card cannot tell.
func TestSetUpMalformedOld(t *testing.T) {
	card := clienttest.NewCard(7)
	agent, c := withCards(t, card)
	c.stdin = "12345"
	c.run("piv", "setup", "--yes", "--old-pin-fd", "0").want(t, 1, "the old PIN is too short")
	agent.Cards[0].DefaultPIN = nil
	p := openPTY(t)
	p.answer(t, "123456): ", "123456789\n")
	p.command(t, agent.Socket).run("piv", "setup", "--yes").want(t, 1, "the old PIN is too long")
	if n := len(agent.Calls(agentwire.SetUpCard)); n != 0 {
		t.Errorf("set up %d times", n)
	}
}

// Scripts hand everything over on one descriptor, a line each.
func TestSetUpByScript(t *testing.T) {
	card := clienttest.NewCard(7)
	card.ProtectedManagement = false
	agent, c := withCards(t, card)
	management := strings.Repeat("0b", 16)
	fd := secrets(t, clienttest.CardPIN, clienttest.CardPUK, management, "864209", "97531086")
	all := []string{"--old-pin-fd", fd, "--old-puk-fd", fd, "--old-management-key-fd", fd, "--pin-fd", fd, "--puk-fd", fd}
	c.run(append([]string{"piv", "setup", "--yes", "--card", "7"}, all...)...).want(t, 0, "card 7 has a new PIN")
	sent := setUpSent(t, agent)
	if string(sent.OldPIN) != clienttest.CardPIN || string(sent.OldPUK) != clienttest.CardPUK || hex.EncodeToString(sent.OldManagementKey) != management ||
		string(sent.PIN) != "864209" || string(sent.PUK) != "97531086" {
		t.Errorf("got %+v on the wire", sent)
	}
	for secrets, want := range map[string]string{
		"123456\n97531086": "counts up or down", "864209\n12345678": "counts up or down", "864209\n864209": "PIN and PUK are the same",
		"86420\n97531086": "the new PIN is too short\nholdfast: hint: use 6 to 8 digits, letters or signs", "": "the new PIN is too short",
		"864209\n975310864": "the new PUK is too long", "864209\n9753 108": "the new PUK has a blank",
	} {
		agent.Cards[0] = clienttest.NewFactoryCard(7)
		c.stdin = secrets
		c.run("piv", "setup", "--yes", "--pin-fd", "0", "--puk-fd", "0").want(t, 1, want)
	}
	if n := len(agent.Calls(agentwire.SetUpCard)); n != 1 {
		t.Errorf("set up %d times, want once", n)
	}
	c.run("piv", "setup", "--generate-puk", "--puk-fd", "0").want(t, 2, "exclude each other")
}

// An error that is certain comes before the first prompt.
func TestSetUpHopeless(t *testing.T) {
	zero, one := 0, 1
	card := clienttest.NewCard(7)
	card.PUKTries = &zero
	agent, c := withCards(t, card)
	c.run("piv", "setup", "--yes").want(t, 5, "the PUK of card 7 is blocked", "ykman piv reset")
	card = clienttest.NewCard(7)
	card.PINTries = &one
	agent.Cards = []agentwire.Card{card}
	c.run("piv", "setup", "--yes").want(t, 5, "one try of its PIN left, and holdfast never uses the last one", "hint: holdfast piv unblock")
	agent.Cards = nil
	c.run("piv", "setup", "--yes").want(t, 1, "no card in any reader")
	agent.Cards = []agentwire.Card{clienttest.NewFactoryCard(7)}
	agent.Fail(agentwire.SetUpCard, &fault.Error{Kind: fault.Busy, Message: "in use", Hint: "wait"})
	c.stdin = "864209\n97531086"
	c.run("piv", "setup", "--yes", "--pin-fd", "0", "--puk-fd", "0").want(t, 1, "error: in use", "hint: wait")
	c.stdin = "0102\n"
	agent.Cards[0].ProtectedManagement = false
	c.run("piv", "setup", "--yes", "--old-management-key-fd", "0").want(t, 1, "32, 48 or 64 hexadecimal digits")
}
