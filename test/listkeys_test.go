package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdfast/test/daemon"
	"holdfast/test/swtpm"
)

func TestMain(m *testing.M) {
	code := m.Run()
	daemon.Remove()
	os.Exit(code)
}

// holdfast runs the user's tool against the agent.
func holdfast(t *testing.T, agent *daemon.Agent, args ...string) {
	t.Helper()
	cmd := exec.Command(daemon.Program(t, daemon.Tool), append([]string{"--socket", agent.Socket}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("holdfast %v: %v\n%s", args, err, out)
	}
}

// listKeys is the example in Python, read from standard input: another user may
// not be able to reach the source.
func listKeys(t *testing.T, agent *daemon.Agent) *exec.Cmd {
	t.Helper()
	source, err := os.Open(filepath.Join(root(t), "packaging/examples/list-keys.py"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { source.Close() })
	cmd := exec.Command("/usr/bin/python3", "-")
	cmd.Stdin, cmd.Dir, cmd.Env = source, "/", []string{"HOLDFAST_SOCKET=" + agent.Socket}
	return cmd
}

func TestListKeysInPython(t *testing.T) {
	agent := daemon.Start(t, daemon.Options{Device: swtpm.Start(t).Device()})
	holdfast(t, agent, "key", "create", "laptop", "--purpose", "tls-client")
	holdfast(t, agent, "key", "create", "web", "--purpose", "tls-server", "--algorithm", "ES384")
	got, err := listKeys(t, agent).CombinedOutput()
	if want := "laptop\ttls-client\tES256\ttpm\nweb\ttls-server\tES384\ttpm\n"; err != nil || string(got) != want {
		t.Errorf("list-keys.py printed\n%s(%v), want\n%s", got, err, want)
	}
}

// TestListKeysInPythonDenied runs the example as another user, with the doors of
// the file system open: the agent itself turns the caller away.
func TestListKeysInPythonDenied(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("needs root, to become another user")
	}
	agent := daemon.Start(t, daemon.Options{})
	agent.Open()
	other := listKeys(t, agent)
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 47123, Gid: 47123}}
	out, err := other.CombinedOutput()
	if want := "its policy does not name this user"; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("as uid 47123: %v, %q; want a failure with %q", err, out, want)
	}
}
