package prompt

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdfast/test/role"
)

// A played is a directory with a pinentry that follows a script.
type played struct {
	t    *testing.T
	dir  string
	path string
}

func play(t *testing.T, name string, s script) *played {
	t.Helper()
	p := &played{t: t, dir: t.TempDir()}
	p.path = filepath.Join(p.dir, name)
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "script"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	wrapper := fmt.Sprintf("#!/bin/sh\n%s=pinentry exec %s %s\n", role.Variable, role.Program(t), p.dir)
	if err := os.WriteFile(p.path, []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

// log returns what the pinentry has written down.
func (p *played) log() string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "log"))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// number returns the number after a word in the log.
func (p *played) number(word string) int32 {
	p.t.Helper()
	var n int32
	eventually(p.t, func() error {
		text, err := os.ReadFile(filepath.Join(p.dir, "log"))
		if err != nil {
			return err
		}
		_, rest, found := strings.Cut(string(text), word+" ")
		if !found {
			return fmt.Errorf("no %s in %q", word, text)
		}
		_, err = fmt.Sscan(rest, &n)
		return err
	})
	return n
}

// asked waits until the pinentry has been given a command.
func (p *played) asked(command string) {
	p.t.Helper()
	eventually(p.t, func() error {
		if log := p.log(); !strings.Contains(log, command+"\n") {
			return fmt.Errorf("no %s in %q", command, log)
		}
		return nil
	})
}

// onDesktop returns a Prompter of an agent with a desktop, on which dirs have the
// pinentries.
func onDesktop(dirs ...string) *Prompter {
	p := New(Options{Mode: Auto})
	p.dirs = dirs
	p.getenv = variables{
		"DISPLAY": ":7", "WAYLAND_DISPLAY": "wayland-0", "XAUTHORITY": "/run/user/1/auth", "XDG_RUNTIME_DIR": "/run/user/1",
		"HOME": "/home/alice", "LANG": "C.UTF-8", "TERM": "xterm", "SECRET": "secret", "LD_PRELOAD": "evil.so", "SSH_TTY": "/dev/pts/1",
	}.get
	return p
}

// daemon returns a caller without a terminal.
func daemon(t *testing.T, env ...string) Subject {
	t.Helper()
	return subject(t, start(t, "wait", &syscall.SysProcAttr{Setsid: true}, env...))
}

var gnome = map[string][]string{"GETINFO": {"D gnome3", "OK"}, "GETPIN": {"D 123456", "OK"}}

// with returns the replies of a graphical pinentry, with one more.
func with(word string, lines ...string) map[string][]string {
	replies := map[string][]string{word: lines}
	for w, l := range gnome {
		if w != word {
			replies[w] = l
		}
	}
	return replies
}
