package desktop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Terminal is one that a user sits at: a window of a tmux server that nobody
// else uses.
type Terminal struct {
	tb     TB
	socket string
}

// OpenTerminal opens a terminal in which a shell runs command, with env as its
// whole environment. It closes with the test, and what runs in it ends.
func OpenTerminal(tb TB, env []string, command string) *Terminal {
	tb.Helper()
	dir, err := os.MkdirTemp("", "term-") // a socket's path has at most 107 bytes
	if err != nil {
		tb.Fatalf("a terminal: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	t := &Terminal{tb: tb, socket: filepath.Join(dir, "tmux")}
	env = append([]string{"TERM=screen", "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"}, env...)
	server := start(tb, env, "", "tmux", "-S", t.socket, "-f", "/dev/null", "-D")
	server.wait("tmux", func() error {
		open := t.command("new-session", "-d", "-x", "100", "-y", "40", command)
		open.Env = env // whose PATH the shell gets
		out, err := open.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	return t
}

// command is a call of this terminal's own tmux server, which reads no
// configuration of the user's. It starts no server of its own (-N): that one would
// outlive the test.
func (t *Terminal) command(args ...string) *exec.Cmd {
	return exec.Command("tmux", append([]string{"-N", "-S", t.socket, "-f", "/dev/null"}, args...)...)
}

// Screen returns what is on the screen now; it is empty when the terminal has
// closed.
func (t *Terminal) Screen() string {
	out, _ := t.command("capture-pane", "-p").Output()
	return string(out)
}

// Await returns the screen once text is on it.
func (t *Terminal) Await(text string) string {
	t.tb.Helper()
	for until := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
		screen := t.Screen()
		if strings.Contains(screen, text) {
			return screen
		}
		if time.Now().After(until) {
			t.tb.Fatalf("%q does not come up on the terminal:\n%s", text, screen)
		}
	}
}

// AwaitPrompt returns the screen once a pinentry has drawn its input field on it
// and reads from the terminal with echo off. A message that only speaks of a PIN is
// not a prompt: what is typed before the pinentry reads may be lost.
func (t *Terminal) AwaitPrompt() string {
	t.tb.Helper()
	for until := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
		screen := t.Screen()
		if strings.Contains(screen, "PIN:") && !t.Echo() {
			return screen
		}
		if time.Now().After(until) {
			t.tb.Fatalf("no prompt for a PIN on the terminal:\n%s", screen)
		}
	}
}

// Pid returns the id of the process that the terminal was opened with.
func (t *Terminal) Pid() int32 {
	t.tb.Helper()
	var pid int32
	if _, err := fmt.Sscan(t.ask("#{pane_pid}"), &pid); err != nil {
		t.tb.Fatalf("the process on the terminal: %v", err)
	}
	return pid
}

// Path returns where the node of the terminal is.
func (t *Terminal) Path() string {
	t.tb.Helper()
	return t.ask("#{pane_tty}")
}

// ask returns what tmux makes of a format.
func (t *Terminal) ask(format string) string {
	t.tb.Helper()
	out, err := t.command("display-message", "-p", format).CombinedOutput()
	if err != nil {
		t.tb.Fatalf("tmux display-message: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// Echo reports whether the terminal shows what is typed.
func (t *Terminal) Echo() bool {
	t.tb.Helper()
	path := t.Path()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.tb.Fatalf("%s: %v", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	state, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		t.tb.Fatalf("%s: %v", path, err)
	}
	return state.Lflag&unix.ECHO != 0
}

// Type types a text, and then Enter.
func (t *Terminal) Type(text string) {
	t.tb.Helper()
	t.Press("-l", text)
	t.Press("Enter")
}

// Press presses keys, by tmux's names for them: Escape, C-c. After -l each
// argument is a text instead.
func (t *Terminal) Press(keys ...string) {
	t.tb.Helper()
	if out, err := t.command(append([]string{"send-keys"}, keys...)...).CombinedOutput(); err != nil {
		t.tb.Fatalf("tmux send-keys: %v: %s", err, out)
	}
}
