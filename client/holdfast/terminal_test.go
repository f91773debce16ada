package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/agent/keys"
	"holdfast/agent/wire"
	"holdfast/client/clienttest"
)

// pty is a terminal and the person in front of it.
type pty struct {
	path   string
	person *os.File // what the person types and sees
	seen   *synced
}

func openPTY(t *testing.T) *pty {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("a terminal: %v", err)
	}
	t.Cleanup(func() { person.Close() })
	check(t, unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	check(t, err)
	p := &pty{path: fmt.Sprintf("/dev/pts/%d", n), person: person, seen: &synced{}}
	hold := p.open(t) // else the first program that closes it hangs it up
	t.Cleanup(func() { hold.Close() })
	return p
}

func (p *pty) open(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(p.path, os.O_RDWR|unix.O_NOCTTY, 0)
	check(t, err)
	return f
}

// answer types each answer when its prompt has appeared.
func (p *pty) answer(t *testing.T, promptsAndAnswers ...string) {
	t.Helper()
	go func() {
		r := bufio.NewReader(io.TeeReader(p.person, p.seen))
		text := ""
		for i := 0; i+1 < len(promptsAndAnswers); {
			c, err := r.ReadByte()
			if err != nil {
				return
			}
			if text += string(c); strings.HasSuffix(text, promptsAndAnswers[i]) {
				io.WriteString(p.person, promptsAndAnswers[i+1])
				i += 2
			}
		}
		io.Copy(io.Discard, r)
	}()
}

func (p *pty) command(t *testing.T, socket string) command {
	return command{socket: socket, terminal: func() (*os.File, error) { return p.open(t), nil }}
}

// waitFor waits until the person has seen text.
func (p *pty) waitFor(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(p.seen.String(), text); {
		if time.Now().After(deadline) {
			t.Fatalf("the terminal shows %q, want %q", p.seen.String(), text)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestUnlockOnTerminal(t *testing.T) {
	agent, _ := withAlice(t)
	p := openPTY(t)
	p.answer(t, "PIN for key alice: ", clienttest.PIN+"\n")
	p.command(t, agent.Socket).run("unlock", "alice", "--seconds", "60").want(t, 0, "alice is unlocked until")
	var sent wire.UnlockKeyParameters
	check(t, json.Unmarshal(agent.Calls(wire.UnlockKey)[0].Parameters, &sent))
	if string(sent.PIN) != clienttest.PIN || sent.Seconds != 60 {
		t.Errorf("got %+v on the wire", sent)
	}
	p.waitFor(t, "alice: \r\n")
	if strings.Contains(p.seen.String(), clienttest.PIN) {
		t.Errorf("the terminal shows the PIN: %q", p.seen.String())
	}
}

func TestUnlockPINDescriptor(t *testing.T) {
	agent, _ := withAlice(t)
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
	agent, c := withAlice(t)
	c.run("unlock", "alice").want(t, 5, "nobody to ask for the PIN", "hint: run it in a terminal and without --pinentry, or hand the PIN over with --pin-fd 3 3<FILE\n")
	agent.Person = true
	c.run("unlock", "alice", "--seconds", "60").want(t, 0, "alice is unlocked until")
	p := openPTY(t)
	p.answer(t)
	p.command(t, agent.Socket).run("unlock", "alice", "--pinentry").want(t, 0, "alice is unlocked until")
	for _, call := range agent.Calls(wire.UnlockKey) {
		var sent wire.UnlockKeyParameters
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

func TestLock(t *testing.T) {
	agent, c := withAlice(t)
	c.run("lock").want(t, 0)
	c.run("lock", "alice").want(t, 0)
	var all, one wire.LockKeysParameters
	check(t, json.Unmarshal(agent.Calls(wire.LockKeys)[0].Parameters, &all))
	check(t, json.Unmarshal(agent.Calls(wire.LockKeys)[1].Parameters, &one))
	if all.Name != "" || one.Name != "alice" {
		t.Errorf("got %+v and %+v on the wire", all, one)
	}
}

func TestCreateWithPIN(t *testing.T) {
	agent := clienttest.Start(t)
	p := openPTY(t)
	p.answer(t, "New PIN for key alice: ", "abcd\n", "again: ", "abcd\n")
	p.command(t, agent.Socket).run("key", "create", "alice", "--purpose", "tls-client", "--pin").want(t, 0, "PIN wanted")

	p = openPTY(t)
	p.answer(t, "New PIN for key bob: ", "abcd\n", "again: ", "abce\n")
	p.command(t, agent.Socket).run("key", "create", "bob", "--purpose", "tls-client", "--pin").want(t, 5, "not the same")

	p = openPTY(t)
	p.answer(t, "New PIN for key bob: ", "abc\n", "again: ", "abc\n")
	p.command(t, agent.Socket).run("key", "create", "bob", "--purpose", "tls-client", "--pin").want(t, 1, "4 to 32 bytes")

	command{socket: agent.Socket, stdin: "abcd"}.run("key", "create", "carol", "--purpose", "tls-client", "--pin-fd", "0").want(t, 0, "PIN wanted")
	if n := len(agent.Calls(wire.CreateKey)); n != 2 {
		t.Errorf("%d keys were made, want 2", n)
	}
}

func TestDeleteOnTerminal(t *testing.T) {
	agent, _ := withAlice(t)
	for answer, code := range map[string]int{"n\n": 5, "\n": 5, "maybe\n": 5} {
		p := openPTY(t)
		p.answer(t, "[y/N] ", answer)
		p.command(t, agent.Socket).run("key", "delete", "alice").want(t, code, "the answer was no")
	}
	p := openPTY(t)
	p.answer(t, "Delete key alice? There is no copy of it anywhere. [y/N] ", "y\n")
	p.command(t, agent.Socket).run("key", "delete", "alice").want(t, 0)
	agent.AddKey("bob", keys.TLSClient, keys.ES256)
	agent.Change("bob", func(k *wire.Key) { k.Place = &wire.Place{Card: 7, Slot: "9a"} })
	p = openPTY(t)
	p.answer(t, "The agent forgets it; it stays in slot 9a of card 7 until it is overwritten. [y/N] ", "y\n")
	p.command(t, agent.Socket).run("key", "delete", "bob").want(t, 0)
	if n := len(agent.Calls(wire.DeleteKey)); n != 2 {
		t.Errorf("deleted %d times, want twice", n)
	}
}

// ^C at the PIN prompt leaves the terminal with its echo on.
func TestInterruptedPrompt(t *testing.T) {
	agent, _ := withAlice(t)
	p := openPTY(t)
	p.answer(t)
	tty := p.open(t)
	defer tty.Close()
	before, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		p.waitForPrompt(tty)
		cancel()
	}()
	var stderr synced
	code := run(ctx, []string{"--socket", agent.Socket, "unlock", "alice"},
		streams{strings.NewReader(""), &stderr, &stderr, func() (*os.File, error) { return p.open(t), nil }})
	after, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	check(t, err)
	if code != 1 || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("got code %d and %q", code, stderr.String())
	}
	if before.Lflag != after.Lflag {
		t.Errorf("the terminal's flags were %#x and are %#x", before.Lflag, after.Lflag)
	}
	io.WriteString(p.person, "\n") // ends the read that was given up
}

// waitForPrompt waits until echo is off.
func (p *pty) waitForPrompt(tty *os.File) {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if t, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS); err == nil && t.Lflag&unix.ECHO == 0 {
			return
		}
	}
}

// Making an RSA key takes long, and the person sees that it goes on.
func TestAlive(t *testing.T) {
	agent := clienttest.Start(t)
	p := openPTY(t)
	p.answer(t)
	tty := p.open(t)
	defer tty.Close()
	args := []string{"--socket", agent.Socket, "key", "create", "alice", "--purpose", "tls-client", "--algorithm"}
	var stdout synced
	if code := run(context.Background(), append(args, string(keys.RS256)), streams{strings.NewReader(""), &stdout, tty, nil}); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	p.waitFor(t, "making an RSA key inside the device … 0 s")
	p.waitFor(t, "\x1b[K")
	agent.Fail(wire.CreateKey, &keys.Error{Kind: keys.Busy, Message: "busy"})
	if got := (command{socket: agent.Socket}).run(append(args[2:], "RS256")...); strings.Contains(got.stderr, "making") {
		t.Errorf("where nobody watches: got %q", got.stderr)
	}
}
