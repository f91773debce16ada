package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// pty is a terminal and the user in front of it.
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

// waitFor waits until the user has seen text.
func (p *pty) waitFor(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(p.seen.String(), text); {
		if time.Now().After(deadline) {
			t.Fatalf("the terminal shows %q, want %q", p.seen.String(), text)
		}
		time.Sleep(time.Millisecond)
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
	if n := len(agent.Calls(agentwire.CreateKey)); n != 2 {
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
	agent.Change("bob", func(k *agentwire.Key) { k.Place = &agentwire.Place{Card: 7, Slot: "9a"} })
	p = openPTY(t)
	p.answer(t, "The agent forgets it; it stays in slot 9a of card 7 until it is overwritten. [y/N] ", "y\n")
	const kept = "note: slot 9a of card 7 keeps the key, which other programs may use with the card's PIN"
	if got := p.command(t, agent.Socket).run("key", "delete", "bob"); got.code != 0 || !strings.Contains(got.stderr, kept) {
		t.Errorf("got %+v", got)
	}
	agent.AddKey("carol", keys.TLSClient, keys.ES256)
	agent.Change("carol", func(k *agentwire.Key) { k.Place = &agentwire.Place{Card: 7, Slot: "9a"} })
	if got := (command{socket: agent.Socket}).run("key", "delete", "carol", "--yes"); got.code != 0 || !strings.Contains(got.stderr, kept) {
		t.Errorf("with --yes: got %+v", got)
	}
	if n := len(agent.Calls(agentwire.DeleteKey)); n != 3 {
		t.Errorf("deleted %d times, want three times", n)
	}
}

// ^C at the PIN prompt leaves the terminal with its echo on.
func TestInterruptedPrompt(t *testing.T) {
	agent, _ := withLockedAlice(t)
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
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if t, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS); err == nil && t.Lflag&unix.ECHO == 0 {
			return
		}
	}
}

// Making an RSA key takes long, and the user sees that it goes on.
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
	agent.Fail(agentwire.CreateKey, &fault.Error{Kind: fault.Busy, Message: "busy"})
	if got := (command{socket: agent.Socket}).run(append(args[2:], "RS256")...); strings.Contains(got.stderr, "making") {
		t.Errorf("where nobody watches: got %q", got.stderr)
	}
}

// A command that waits for the agent says so on a terminal, and nowhere else.
func TestStillWaiting(t *testing.T) {
	agent, _ := withAlice(t)
	p := openPTY(t)
	p.answer(t)
	tty := p.open(t)
	defer tty.Close()
	release := agent.Hold(agentwire.CreateKey)
	ended := make(chan int, 1)
	go func() {
		var stdout synced
		ended <- run(context.Background(), []string{"--socket", agent.Socket, "key", "create", "bob", "--purpose", "tls-client"},
			streams{strings.NewReader(""), &stdout, tty, nil})
	}()
	p.waitFor(t, "holdfast: note: the agent has not answered for 3 s; holdfast status shows")
	p.waitFor(t, "the agent has not answered for 8 s")
	release()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
}
