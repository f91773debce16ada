package prompt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/test/desktop"
	"holdfast/test/role"
)

// A pane is a terminal with a process in it that wants a key.
type pane struct {
	*desktop.Terminal
	t   *testing.T
	pid int32
	tty string
}

// newPane starts a caller in a role on a terminal of its own. Variables are of
// the form NAME=value.
func newPane(t *testing.T, name string, env ...string) *pane {
	t.Helper()
	line := fmt.Sprintf("exec env -u SSH_CONNECTION -u SSH_TTY %s %s=%s %s", strings.Join(env, " "), role.Variable, name, role.Program(t))
	p := &pane{Terminal: desktop.OpenTerminal(t, nil, line), t: t}
	p.pid, p.tty = p.Pid(), p.Path()
	running(t, p.pid) // tmux starts a shell, which becomes env, which becomes the caller
	return p
}

// wait waits until the terminal shows all of these, and returns it.
func (p *pane) wait(texts ...string) string {
	p.t.Helper()
	var screen string
	eventually(p.t, func() error {
		screen = p.Screen()
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return fmt.Errorf("no %q on the terminal:\n%s", text, screen)
			}
		}
		return nil
	})
	return screen
}

// prompted waits until a pinentry has drawn its prompt with all of these texts
// and reads from the terminal with echo off. Earlier input may be lost.
func (p *pane) prompted(texts ...string) string {
	p.t.Helper()
	p.wait(append(texts, "PIN:")...)
	eventually(p.t, func() error {
		if p.Echo() {
			return errors.New("the pinentry does not read yet: the terminal has its echo")
		}
		return nil
	})
	return p.Screen()
}

// An answer is what PIN returned.
type answered struct {
	pin []byte
	err error
}

// asking calls PIN.
func asking(ctx context.Context, p *Prompter, s Subject) <-chan answered {
	c := make(chan answered, 1)
	go func() {
		pin, err := p.PIN(ctx, s)
		c <- answered{pin, err}
	}()
	return c
}

// within returns the answer, which must come soon.
func within(t *testing.T, c <-chan answered) answered {
	t.Helper()
	select {
	case a := <-c:
		return a
	case <-time.After(20 * time.Second):
		t.Fatal("no answer")
		panic("unreachable")
	}
}
