package main_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/test/daemon"
)

func TestMain(m *testing.M) {
	code := m.Run()
	daemon.Remove()
	os.Exit(code)
}

// run runs the program to its end.
func run(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(daemon.Program(t, daemon.BrokerProgram), args...)
	cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestAnswers(t *testing.T) {
	if out, _, code := run(t, nil, "--version"); code != 0 || !strings.HasPrefix(out, "holdfast-broker ") || !strings.Contains(out, "go1.") {
		t.Errorf("--version: %d %q", code, out)
	}
	if out, _, code := run(t, nil, "--explain", "--socket", "/r/b.sock"); code != 0 || !strings.Contains(out, "/r/b.sock") {
		t.Errorf("--explain: %d %q", code, out)
	}
	if out, _, code := run(t, nil, "--help"); code != 0 || !strings.Contains(out, "--agent-socket") {
		t.Errorf("--help: %d %q", code, out)
	}
	for _, args := range [][]string{{"--nonsense"}, {"argument"}, {"--listen", "example.org:1"}} {
		if _, errs, code := run(t, nil, args...); code != 2 || errs == "" {
			t.Errorf("%q: %d %q", args, code, errs)
		}
	}
}

// Two brokers on one socket: the second says so and leaves the first alone.
func TestSecondBroker(t *testing.T) {
	first := daemon.StartBroker(t, daemon.BrokerOptions{})
	second := daemon.LaunchBroker(t, daemon.BrokerOptions{Dir: first.Dir})
	if code := second.Exit(); code != 1 || !strings.Contains(second.Log(), "already running, pid") {
		t.Errorf("got %d\n%s", code, second.Log())
	}
	elsewhere := filepath.Join(daemon.Dir(t), "b.sock")
	third := daemon.LaunchBroker(t, daemon.BrokerOptions{Dir: first.Dir, Args: []string{"--socket", elsewhere}})
	if code := third.Exit(); code != 1 || !strings.Contains(third.Log(), "lock: already running, pid") {
		t.Errorf("on another socket, in the same state: got %d\n%s", code, third.Log())
	}
	if s := first.GetStatus(); s.PID != first.Pid() {
		t.Errorf("got process %d", s.PID)
	}
}

func TestRefusesToStart(t *testing.T) {
	dir := daemon.Dir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	open := daemon.LaunchBroker(t, daemon.BrokerOptions{Args: []string{"--socket", filepath.Join(dir, "b.sock")}})
	if code := open.Exit(); code != 1 || !strings.Contains(open.Log(), "others may have none of the permissions") {
		t.Errorf("an open directory: got %d\n%s", code, open.Log())
	}
	bad := filepath.Join(daemon.Dir(t), "policy.yaml")
	if err := os.WriteFile(bad, []byte("version: 1\nrules:\n  - allow: [use]\n    uids: [0]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	policy := daemon.LaunchBroker(t, daemon.BrokerOptions{Args: []string{"--policy", bad}})
	if code := policy.Exit(); code != 1 || !strings.Contains(policy.Log(), "policy.yaml:3") {
		t.Errorf("a bad policy: got %d\n%s", code, policy.Log())
	}
	state := daemon.Dir(t)
	if err := os.Chmod(state, 0o755); err != nil {
		t.Fatal(err)
	}
	shared := daemon.LaunchBroker(t, daemon.BrokerOptions{Args: []string{"--state", state}})
	if code := shared.Exit(); code != 1 || !strings.Contains(shared.Log(), "this user's own") {
		t.Errorf("a state directory that others can read: got %d\n%s", code, shared.Log())
	}
}

// systemd's own tool listens on the Unix socket and on loopback.
func TestSocketActivation(t *testing.T) {
	dir := daemon.Dir(t)
	path := filepath.Join(dir, "broker.sock")
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	agent := daemon.Start(t, daemon.Options{})
	b := daemon.LaunchBroker(t, daemon.BrokerOptions{
		Agent: agent, Args: []string{"--socket", path, "--loopback-key", "file"},
		Wrap: []string{"sh", "-c", `umask 0177; exec "$@"`, "sh", "systemd-socket-activate", "-l", path, "-l", address, "--fdname=broker:loopback"},
	})
	b.Socket = path
	if err := b.Ready(); err != nil {
		t.Fatal(err)
	}
	if s := b.GetStatus(); s.Endpoint.Address != address {
		t.Errorf("got %s, want %s\n%s", s.Endpoint.Address, address, b.Log())
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if code := b.Stop(); code != 0 {
		t.Errorf("got status %d\n%s", code, b.Log())
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("systemd's socket is gone: %v", err)
	}
}
