package prompt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A pane is a terminal of a private tmux, with a process in it that wants a key.
type pane struct {
	t      *testing.T
	socket string
	pid    int32
	tty    string
}

// newPane starts a caller in a role on a terminal of its own. Variables are of
// the form NAME=value.
func newPane(t *testing.T, role string, env ...string) *pane {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf-tmux-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &pane{t: t, socket: filepath.Join(dir, "s")}
	line := fmt.Sprintf("exec env -u SSH_CONNECTION -u SSH_TTY %s %s=%s %s", strings.Join(env, " "), roleVariable, role, binaryPath(t))
	t.Cleanup(func() { exec.Command("tmux", "-S", p.socket, "kill-server").Run() })
	out := p.tmux("-u", "new-session", "-d", "-x", "90", "-y", "30", "-P", "-F", "#{pane_pid} #{pane_tty}", line)
	if _, err := fmt.Sscan(out, &p.pid, &p.tty); err != nil {
		t.Fatalf("tmux said %q: %v", out, err)
	}
	running(t, p.pid) // tmux starts a shell, which becomes env, which becomes the caller
	return p
}

func (p *pane) tmux(args ...string) string {
	p.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-S", p.socket, "-f", "/dev/null"}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "SHELL=/bin/sh", "TERM=xterm", "HOME=/nonexistent"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

// screen returns what the terminal shows.
func (p *pane) screen() string { return p.tmux("capture-pane", "-p") }

// wait waits until the terminal shows all of these, and returns it.
func (p *pane) wait(texts ...string) string {
	p.t.Helper()
	var screen string
	eventually(p.t, func() error {
		screen = p.screen()
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
// and reads from the terminal with echo off. What is typed before may be lost.
func (p *pane) prompted(texts ...string) string {
	p.t.Helper()
	p.wait(append(texts, "PIN:")...)
	eventually(p.t, func() error {
		if p.echo() {
			return errors.New("the pinentry does not read yet: the terminal has its echo")
		}
		return nil
	})
	return p.screen()
}

// typed types keys, as tmux names them.
func (p *pane) typed(keys ...string) { p.tmux(append([]string{"send-keys"}, keys...)...) }

// echo reports whether the terminal shows what is typed.
func (p *pane) echo() bool {
	p.t.Helper()
	fd, err := unix.Open(p.tty, unix.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	defer unix.Close(fd)
	state, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
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
