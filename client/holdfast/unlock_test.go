package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
)

// withLockedAlice is withAlice for a key with a PIN.
func withLockedAlice(t *testing.T) (*clienttest.Agent, command) {
	t.Helper()
	agent, c := withAlice(t)
	agent.Change("alice", func(k *agentwire.Key) { k.PIN = true })
	return agent, c
}

func TestUnlockOnTerminal(t *testing.T) {
	agent, _ := withLockedAlice(t)
	p := openPTY(t)
	p.answer(t, "PIN for key alice: ", clienttest.PIN+"\n")
	p.command(t, agent.Socket).run("unlock", "alice", "--seconds", "60").want(t, 0, "alice is unlocked until")
	var sent agentwire.UnlockKeyParameters
	check(t, json.Unmarshal(agent.Calls(agentwire.UnlockKey)[0].Parameters, &sent))
	if string(sent.PIN) != clienttest.PIN || sent.Seconds != 60 {
		t.Errorf("got %+v on the wire", sent)
	}
	p.waitFor(t, "alice: \r\n")
	if strings.Contains(p.seen.String(), clienttest.PIN) {
		t.Errorf("the terminal shows the PIN: %q", p.seen.String())
	}
}

func TestUnlockPINDescriptor(t *testing.T) {
	agent, _ := withLockedAlice(t)
	for input, want := range map[string]int{
		clienttest.PIN: 0, clienttest.PIN + "\n": 0, clienttest.PIN + "\r\n": 0, clienttest.PIN + "\nmore": 0,
		"1357": 5, "": 1, "12": 1, strings.Repeat("1", 33): 1, "24\x0068": 1,
	} {
		c := command{socket: agent.Socket, stdin: input}
		if got := c.run("unlock", "alice", "--pin-fd", "0"); got.code != want {
			t.Errorf("PIN %q: got %+v, want code %d", input, got, want)
		}
	}
	r, w, err := os.Pipe()
	check(t, err)
	io.WriteString(w, clienttest.PIN)
	w.Close()
	fd, err := unix.Dup(int(r.Fd())) // the command closes it
	check(t, err)
	r.Close()
	command{socket: agent.Socket}.run("unlock", "alice", "--pin-fd", fmt.Sprint(fd)).want(t, 0)
	command{socket: agent.Socket}.run("unlock", "alice", "--pin-fd", "987").want(t, 1, "--pin-fd 987")
}

// Without a terminal it is the agent that asks, if it can.
func TestUnlockWithoutTerminal(t *testing.T) {
	agent, c := withLockedAlice(t)
	c.run("unlock", "alice", "--pinentry").want(t, 5, "hint: run it in a terminal and without --pinentry, or hand")
	c.run("unlock", "alice").want(t, 5, "no prompt for the PIN can be shown", "hint: run it in a terminal, or hand the PIN over with --pin-fd 3 3<FILE\n")
	agent.Person = true
	c.run("unlock", "alice", "--seconds", "60").want(t, 0, "alice is unlocked until")
	p := openPTY(t)
	p.answer(t)
	p.command(t, agent.Socket).run("unlock", "alice", "--pinentry").want(t, 0, "alice is unlocked until")
	for _, call := range agent.Calls(agentwire.UnlockKey) {
		var sent agentwire.UnlockKeyParameters
		check(t, json.Unmarshal(call.Parameters, &sent))
		if sent.PIN != nil || sent.Name != "alice" {
			t.Errorf("got %+v on the wire", sent)
		}
	}
	if seen := p.seen.String(); seen != "" {
		t.Errorf("with --pinentry the terminal shows %q", seen)
	}
	c.run("unlock", "alice", "--pinentry", "--pin-fd", "0").want(t, 2, "exclude each other")
}

// A slip costs no new command: what is malformed or wrong is asked for again.
func TestUnlockAgain(t *testing.T) {
	agent, _ := withLockedAlice(t)
	p := openPTY(t)
	p.answer(t, "alice: ", "12\n", "alice: ", "1357\n", "alice: ", clienttest.PIN+"\n")
	got := p.command(t, agent.Socket).run("unlock", "alice")
	got.want(t, 0, "alice is unlocked until")
	if !strings.Contains(got.stderr, "error: a PIN has 4 to 32 bytes and no zero byte\n") || !strings.Contains(got.stderr, "error: the PIN is wrong\n") || strings.Contains(got.stderr, "hint") {
		t.Errorf("got %q", got.stderr)
	}
	p = openPTY(t)
	p.answer(t, "alice: ", "1357\n", "alice: ", "\n")
	p.command(t, agent.Socket).run("unlock", "alice").want(t, 5, "the PIN is wrong", "no PIN was entered")
	p = openPTY(t)
	p.answer(t, "alice: ", "1\n", "alice: ", "1\n", "alice: ", "1\n", "alice: ", "1\n", "alice: ", "1\n")
	p.command(t, agent.Socket).run("unlock", "alice").want(t, 1, "4 to 32 bytes")
	if n := len(agent.Calls(agentwire.UnlockKey)); n != 3 {
		t.Errorf("%d PINs were sent, want 3", n)
	}
	agent.Fail(agentwire.UnlockKey, &fault.Error{Kind: fault.PINBlocked, Message: "too many"})
	p = openPTY(t)
	p.answer(t, "alice: ", "1357\n")
	p.command(t, agent.Socket).run("unlock", "alice").want(t, 5, "too many")
}

// cardTries is a card that counts the tries of its PIN.
func cardTries(agent *clienttest.Agent, tries int) { agent.Cards[0].PINTries = &tries }

func TestUnlockCard(t *testing.T) {
	agent, _, _ := withAliceOnCard(t)
	agent.Change("alice", func(k *agentwire.Key) { k.PIN = true })
	p := openPTY(t)
	p.answer(t, "PIN of card 7, for key alice (3 tries left): ", "12345\n", "left): ", "1357\n", "left): ", "\n")
	p.command(t, agent.Socket).run("unlock", "alice").want(t, 5, "6 to 8 digits, letters or signs", "no PIN was entered")
	if n := len(agent.Calls(agentwire.UnlockKey)); n != 0 {
		t.Errorf("%d malformed PINs were sent", n)
	}
	agent.Fail(agentwire.ListCards, &fault.Error{Kind: fault.Denied, Message: "not you"})
	p = openPTY(t)
	p.answer(t, "PIN of card 7, for key alice: ", "\n")
	p.command(t, agent.Socket).run("unlock", "alice").want(t, 5, "no PIN was entered")
}

// No prompt asks for a PIN that cannot work.
func TestUnlockThatCannotWork(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*clienttest.Agent)
		code  int
		texts []string
	}{
		"no PIN":    {func(a *clienttest.Agent) { a.Change("alice", func(k *agentwire.Key) { k.PIN = false }) }, 5, []string{"no prompt for the PIN"}},
		"elsewhere": {func(a *clienttest.Agent) { a.Cards[0].Serial = 8 }, 1, []string{"key alice is on card 7, which is in no reader", "hint: insert card 7"}},
		"no reader": {func(a *clienttest.Agent) { a.Cards = nil }, 1, []string{"which is in no reader"}},
		"in use": {func(a *clienttest.Agent) {
			a.Cards[0].State, a.Cards[0].Reason, a.Cards[0].Hint = "busy", "gpg has it", "wait"
		}, 1, []string{"gpg has it", "hint: wait"}},
		"blocked":      {func(a *clienttest.Agent) { cardTries(a, 0) }, 5, []string{"the PIN of card 7 is blocked", "hint: holdfast piv unblock"}},
		"the last try": {func(a *clienttest.Agent) { cardTries(a, 1) }, 5, []string{"one try of its PIN left", "hint: holdfast piv unblock"}},
		"no pcscd": {func(a *clienttest.Agent) {
			a.Fail(agentwire.ListCards, &fault.Error{Kind: fault.DeviceAbsent, Message: "no pcscd"})
		}, 1, []string{"no pcscd"}},
		"no such key": {func(a *clienttest.Agent) {
			a.Fail(agentwire.GetKey, &fault.Error{Kind: fault.Denied, Message: "no such key"})
		}, 4, []string{"no such key"}},
	} {
		t.Run(name, func(t *testing.T) {
			agent, _, path := withAliceOnCard(t)
			agent.Change("alice", func(k *agentwire.Key) { k.PIN = true })
			test.spoil(agent)
			p := openPTY(t)
			p.answer(t)
			p.command(t, agent.Socket).run("unlock", "alice").want(t, test.code, test.texts...)
			if name != "no PIN" && name != "no such key" {
				p.command(t, agent.Socket).run("certificate", "install", "alice", path).want(t, test.code, test.texts...)
			}
			if seen := p.seen.String(); seen != "" {
				t.Errorf("the terminal asks %q", seen)
			}
			if n := len(agent.Calls(agentwire.InstallCertificate)); n != 0 {
				t.Errorf("%d certificates were stored", n)
			}
		})
	}
}
