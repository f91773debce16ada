package prompt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"holdfast/internal/fault"
)

// bare returns a Prompter of an agent that has no desktop, with one of the real
// pinentries.
func bare(t *testing.T, pinentry string) *Prompter {
	t.Helper()
	p := New(Options{Mode: Auto})
	p.getenv = func(string) string { return "" }
	if pinentry != "" {
		p.o.Pinentry = "/usr/bin/" + pinentry
	}
	return p
}

// wantKind fails unless err is of the kind and says text.
func wantKind(t *testing.T, err error, kind fault.Kind, text string) *fault.Error {
	t.Helper()
	e, ok := fault.AsError(err)
	if !ok || e.Kind != kind || !strings.Contains(e.Message, text) {
		t.Fatalf("got %v (%s), want %s with %q", err, fault.KindOf(err), kind, text)
	}
	if e.Advice() == "" {
		t.Errorf("no hint beside %q", e.Message)
	}
	return e
}

// TestPINOnTerminal has a user type a PIN, in the real pinentries, on the
// terminal of the process that wants the key.
func TestPINOnTerminal(t *testing.T) {
	for _, pinentry := range []string{"", "pinentry-curses", "pinentry-tty"} {
		t.Run(pinentry, func(t *testing.T) {
			pane := newPane(t, "wait")
			s := subject(t, pane.pid)
			s.Tries, s.Again = 2, "wrong PIN"
			c := asking(t.Context(), bare(t, pinentry), s)
			pane.prompted(`PIN of key: "alice"`, `on: "card 12345678"`, `for: "tls-client", "sign-tls-client"`,
				"to: not verified which server", fmt.Sprintf(`asked by: "caller" (%d)`, pane.pid), "wrong PIN, 2 tries left")
			pane.Press("-l", "12% 34+6")
			pane.Press("Enter")
			a := within(t, c)
			if a.err != nil || string(a.pin) != "12% 34+6" {
				t.Fatalf("got %q, %v", a.pin, a.err)
			}
			if screen := pane.Screen(); strings.Contains(screen, "34+6") {
				t.Errorf("the PIN is on the terminal:\n%s", screen)
			}
			if !pane.Echo() {
				t.Error("the terminal has lost its echo")
			}
		})
	}
}

// TestDescriptionSaysWhatIsKnown: a destination is shown when it was verified, and
// a caller that the kernel did not name is not shown as if it had.
func TestDescriptionSaysWhatIsKnown(t *testing.T) {
	pane := newPane(t, "wait")
	s := subject(t, pane.pid)
	s.Verified, s.Destination = false, "https://api.prod:6443"
	c := asking(t.Context(), bare(t, ""), s)
	screen := pane.prompted(`to: "https://api.prod:6443"`, ", reported by ")
	if strings.Contains(screen, "not verified") || strings.Contains(screen, "tries left") {
		t.Errorf("the prompt says what is not so:\n%s", screen)
	}
	pane.Press("123456", "Enter")
	if a := within(t, c); string(a.pin) != "123456" {
		t.Errorf("got %q, %v", a.pin, a.err)
	}
}

// TestCancel closes the prompt as a user does. pinentry-tty knows no other way
// than to type nothing.
func TestCancel(t *testing.T) {
	for pinentry, test := range map[string]struct {
		keys []string
		text string
	}{
		"pinentry-curses": {[]string{"1", "Tab", "Tab", "Enter"}, "the PIN prompt was closed"},
		"pinentry-tty":    {[]string{"Enter"}, "no PIN was typed"},
	} {
		t.Run(pinentry, func(t *testing.T) {
			pane := newPane(t, "wait")
			c := asking(t.Context(), bare(t, pinentry), subject(t, pane.pid))
			pane.prompted()
			pane.Press(test.keys...)
			e := wantKind(t, within(t, c).err, fault.PINRequired, test.text)
			if !errors.Is(e, ErrClosed) {
				t.Errorf("%v is not what a person wanted", e)
			}
			if e.Advice() != "holdfast unlock alice" || e.Next.Key != "alice" {
				t.Errorf("hint %q", e.Hint)
			}
			if !pane.Echo() {
				t.Error("the terminal has lost its echo")
			}
		})
	}
}

// TestEndOfContext ends what waits for a user: the pinentry is gone, and the
// terminal as it was.
func TestEndOfContext(t *testing.T) {
	for _, pinentry := range []string{"pinentry-curses", "pinentry-tty"} {
		t.Run(pinentry, func(t *testing.T) {
			pane := newPane(t, "wait")
			ctx, cancel := context.WithCancel(t.Context())
			c := asking(ctx, bare(t, pinentry), subject(t, pane.pid))
			pane.prompted()
			pane.Press("-l", "12345")
			running := onTerminal(t, pane.tty, pinentry)
			cancel()
			a := within(t, c)
			wantKind(t, a.err, fault.PINRequired, "withdrawn")
			if !errors.Is(a.err, context.Canceled) {
				t.Errorf("%v is not the end of the context", a.err)
			}
			if err := gone(running); err != nil {
				t.Error(err)
			}
			if !pane.Echo() {
				t.Error("the terminal has lost its echo")
			}
		})
	}
}

// onTerminal returns the process with a name that has the terminal open.
func onTerminal(t *testing.T, tty, name string) int32 {
	t.Helper()
	var found int32
	eventually(t, func() error {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return err
		}
		for _, entry := range entries {
			pid, err := strconv.ParseInt(entry.Name(), 10, 32)
			if err != nil {
				continue
			}
			p, err := look(int32(pid))
			if err == nil && p.Name == name && opened(int32(pid), tty) {
				found = p.PID
				return nil
			}
		}
		return fmt.Errorf("no %s on %s", name, tty)
	})
	return found
}

func opened(pid int32, path string) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, _ := os.ReadDir(dir) // a process that ends has none
	for _, entry := range entries {
		if to, err := os.Readlink(dir + "/" + entry.Name()); err == nil && to == path {
			return true
		}
	}
	return false
}

// TestInterrupt is the user who presses Ctrl-C: the terminal sends it to the
// caller, with which the prompt ends, without any other message.
func TestInterrupt(t *testing.T) {
	for _, pinentry := range []string{"pinentry-curses", "pinentry-tty"} {
		t.Run(pinentry, func(t *testing.T) {
			shell := newPane(t, "shell")
			job := childOf(t, shell.pid)
			c := asking(t.Context(), bare(t, pinentry), subject(t, job))
			shell.prompted()
			shell.Press("C-c")
			wantKind(t, within(t, c).err, fault.PINRequired, "")
			if !shell.Echo() {
				t.Error("the terminal has lost its echo")
			}
		})
	}
}
