package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"os"
	"strings"
	"testing"
	"time"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

// installSent is what the agent was last told to store.
func installSent(t *testing.T, agent *clienttest.Agent) (sent agentwire.InstallCertificateParameters) {
	t.Helper()
	calls := agent.Calls(agentwire.InstallCertificate)
	if len(calls) == 0 {
		t.Fatal("nothing was stored")
	}
	check(t, json.Unmarshal(calls[len(calls)-1].Parameters, &sent))
	return sent
}

// withAliceOnCard starts a stand-in agent whose key alice is on a card, and writes a
// certificate for it into a file.
func withAliceOnCard(t *testing.T) (*clienttest.Agent, command, string) {
	t.Helper()
	agent, c := withAlice(t)
	agent.Change("alice", func(k *agentwire.Key) {
		k.Backend, k.Place = "piv", &agentwire.Place{Card: 7, Slot: "9a", PINPolicy: "never", TouchPolicy: "always", Attested: true}
	})
	agent.Cards = []agentwire.Card{clienttest.NewCard(7)}
	k := agent.AddKey("unused", keys.TLSClient, keys.ES256)
	ca := clienttest.NewCA(t)
	public, err := keys.ParsePublic(k.PublicKey)
	check(t, err)
	return agent, c, file(t, clienttest.PEM(ca.IssueFor("alice", public)))
}

func TestInstallOnCard(t *testing.T) {
	agent, c, path := withAliceOnCard(t)
	p := openPTY(t)
	p.answer(t, "PIN of card 7, for key alice (3 tries left): ", "12345\n", "left): ", "135799\n", "left): ", clienttest.CardPIN+"\n")
	got := p.command(t, agent.Socket).run("certificate", "install", "alice", path)
	got.want(t, 0, "CN=alice until")
	if sent := installSent(t, agent); string(sent.PIN) != clienttest.CardPIN || len(sent.Chain) != 1 {
		t.Errorf("got %+v on the wire", sent)
	}
	if !strings.Contains(got.stderr, "note: the chain is in the record, and the leaf in slot 9a of card 7\n") {
		t.Errorf("got %q", got.stderr)
	}
	c.stdin = "135799"
	c.run("certificate", "install", "alice", path, "--pin-fd", "0").want(t, 5, "the PIN is wrong")
}

func TestInstallWithManagementKey(t *testing.T) {
	agent, c, path := withAliceOnCard(t)
	c.stdin = strings.Repeat("a55a42", 8) + "\n"
	c.run("certificate", "install", "alice", path, "--management-key-fd", "0").want(t, 0, "CN=alice until")
	if sent := installSent(t, agent); len(sent.PIN) != 0 || !bytes.Equal(sent.ManagementKey, bytes.Repeat([]byte{0xa5, 0x5a, 0x42}, 8)) {
		t.Errorf("got %+v on the wire", sent)
	}
	c.stdin = "a55a"
	c.run("certificate", "install", "alice", path, "--management-key-fd", "0").want(t, 1, "management key")
}

func TestInstallRecordOnly(t *testing.T) {
	agent, c, path := withAliceOnCard(t)
	c.run("certificate", "install", "alice", path).want(t, 5, "the card's PIN is needed", "hint: run it in a terminal, or hand it over with --pin-fd 3 3<FILE, or leave the slot as it is: --record-only")
	if n := len(agent.Calls(agentwire.InstallCertificate)); n != 0 {
		t.Fatalf("%d were stored although the slot was meant too", n)
	}
	got := c.run("certificate", "install", "alice", path, "--record-only")
	got.want(t, 0, "CN=alice until")
	if sent := installSent(t, agent); sent.PIN != nil {
		t.Errorf("got %+v on the wire", sent)
	}
	if !strings.Contains(got.stderr, "note: the chain is in the record alone, and not in slot 9a of card 7\n") {
		t.Errorf("got %q", got.stderr)
	}
	c.stdin = "12345"
	c.run("certificate", "install", "alice", path, "--pin-fd", "0").want(t, 1, "6 to 8 digits")
	if got := c.run("certificate", "install", "unused", path); got.code != 0 || got.stderr != "" {
		t.Errorf("a key in no card: got %+v", got)
	}
}

// A key that is unlocked needs no PIN, and what came of it is looked up.
func TestInstallUnlocked(t *testing.T) {
	agent, c, path := withAliceOnCard(t)
	until := time.Now().Add(time.Hour)
	agent.Change("alice", func(k *agentwire.Key) { k.PIN, k.UnlockedUntil = true, &until })
	card := clienttest.NewCard(7)
	data, err := os.ReadFile(path)
	check(t, err)
	leaf, _ := pem.Decode(data)
	card.Slots = []agentwire.CardSlot{{Slot: "9c", Certificate: leaf.Bytes}, {Slot: "9a"}}
	agent.Cards = []agentwire.Card{card}
	for _, want := range []string{"record alone, and not in slot 9a of card 7", "the leaf in slot 9a of card 7"} {
		if got := c.run("certificate", "install", "alice", path); got.code != 0 || !strings.Contains(got.stderr, want) {
			t.Errorf("got %+v, want it to say %q", got, want)
		}
		if sent := installSent(t, agent); sent.PIN != nil {
			t.Errorf("got %+v on the wire", sent)
		}
		card.Slots[1].Certificate = leaf.Bytes
	}
	c.stdin = clienttest.CardPIN
	c.run("certificate", "install", "alice", path, "--pin-fd", "0").want(t, 0)
	if sent := installSent(t, agent); string(sent.PIN) != clienttest.CardPIN {
		t.Errorf("got %+v on the wire", sent)
	}
}
