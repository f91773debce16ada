package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdfast/test/role"
)

func TestMain(m *testing.M) {
	role.Main(m, func(_ string, line []string) error {
		status, err := run(line)
		if err != nil {
			return err
		}
		os.Exit(status)
		return nil
	})
}

// start runs a shell's script with the command, and returns the temporary directory
// that the script prints first.
func start(t *testing.T, script string) (*role.Process, string) {
	t.Helper()
	p := role.Start(t, role.Options{Role: "run", Env: []string{"PATH=/usr/bin:/bin", "TMPDIR=" + t.TempDir()}},
		"sh", "-c", `echo "$TMPDIR"; `+script)
	return p, p.Line()
}

// wantNothing fails when something of a directory is left.
func wantNothing(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("%s: %v, want that it is gone", dir, err)
	}
	if left := processes(dir); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

func TestStatus(t *testing.T) {
	p, dir := start(t, `mkdir "$TMPDIR/sub"; (sleep 600 & setsid sleep 600 &); exit 7`)
	if err := p.Cmd.Wait(); p.Cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("got %v, want status 7", err)
	}
	wantNothing(t, dir)
	missing := role.Start(t, role.Options{Role: "run", Env: []string{"TMPDIR=" + t.TempDir()}}, "/no/such/program")
	if line := missing.Line(); !strings.HasPrefix(line, "failed: ") {
		t.Errorf("a program that is not there: %q", line)
	}
}

// TestInterrupted: a signal ends the command and all that it has started, in
// whichever session and with whichever environment that may be.
func TestInterrupted(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		p, dir := start(t, `setsid sleep 600 & env -i setsid tail -f "$TMPDIR/../none" "$TMPDIR/log" 2>/dev/null & trap 'exit 1' INT TERM HUP; : >"$TMPDIR/log"; echo ready; while :; do sleep 0.01; done`)
		p.Expect("ready")
		if err := p.Cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		_ = p.Cmd.Wait() // its state tells
		if got := p.Cmd.ProcessState.ExitCode(); got != 128+int(s) {
			t.Errorf("%v: status %d, want %d", s, got, 128+int(s))
		}
		wantNothing(t, dir)
	}
}

// TestDemoUnread: a demonstration whose output nobody reads, as with `| head -n 1`,
// ends, and leaves neither its directory nor a process behind.
func TestDemoUnread(t *testing.T) {
	stage, err := filepath.Abs("../stage")
	if err != nil {
		t.Fatal(err)
	}
	for _, ending := range []string{
		`for i in 1 2 3; do say "$i"; sleep 0.1; done; exec >&2; echo "not ended by the pipe"`,
		`kill -TERM $$; sleep 600`,
	} {
		script := filepath.Join(t.TempDir(), "demo")
		text := fmt.Sprintf("set -eu\nPWD=/nonexistent\n. %s\nbackground helper sleep 600\necho \"$dir $!\" >&3\n%s\n", stage, ending)
		if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		p := role.Start(t, role.Options{Role: "run", Env: []string{"PATH=/usr/bin:/bin", "TMPDIR=" + t.TempDir()}},
			"sh", "-c", `exec 3>&1; { sh "$0" 2>&3; echo "status $?" >&3; } | :`, script)
		var dir string
		var pid int
		if _, err := fmt.Sscan(p.Line(), &dir, &pid); err != nil {
			t.Fatal(err)
		}
		line := p.Line()
		for !strings.HasPrefix(line, "status ") { // what the shell says about its output
			line = p.Line()
		}
		if line == "status 0" {
			t.Errorf("%s: got %q, want that it was interrupted", ending, line)
		}
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: %v, want that it is gone", dir, err)
		}
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			t.Errorf("process %d: %v, want that it is gone", pid, err)
		}
	}
}
