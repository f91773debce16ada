package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/test/swtpm"
)

// A service is a running agent, as its users meet it.
type service struct {
	socket string
	bin    string // the directory of the product's binaries
}

// startAgent runs the agent's binary over a software TPM until the test ends.
func startAgent(t *testing.T) service {
	t.Helper()
	// Not t.TempDir: the path of a Unix socket has at most 107 bytes.
	dir, err := os.MkdirTemp("", "hf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := service{socket: filepath.Join(dir, "agent.sock"), bin: binaries(t)}
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	agent := exec.Command(filepath.Join(s.bin, "holdfast-agent"),
		"--state", state, "--socket", s.socket, "--device", swtpm.Start(t).Device(), "--piv", "off")
	agent.Stderr = &log
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		agent.Process.Signal(syscall.SIGTERM)
		if err := agent.Wait(); err != nil {
			t.Errorf("holdfast-agent: %v\n%s", err, &log)
		}
	})
	for deadline := time.Now().Add(20 * time.Second); s.holdfast("status").Run() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the agent did not come up")
		}
	}
	return s
}

// holdfast is a command line of the person's tool.
func (s service) holdfast(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, "holdfast"), args...)
	cmd.Env = append(os.Environ(), "HOLDFAST_SOCKET="+s.socket)
	return cmd
}

// listKeys is a command line of the example client in Python.
func (s service) listKeys(t *testing.T) *exec.Cmd {
	cmd := exec.Command("/usr/bin/python3", filepath.Join(root(t), "packaging/examples/list-keys.py"))
	cmd.Env = append(os.Environ(), "HOLDFAST_SOCKET="+s.socket)
	return cmd
}

func TestListKeysInPython(t *testing.T) {
	s := startAgent(t)
	for _, key := range [][]string{
		{"key", "create", "laptop", "--purpose", "tls-client"},
		{"key", "create", "web", "--purpose", "tls-server", "--algorithm", "ES384"},
	} {
		if out, err := s.holdfast(key...).CombinedOutput(); err != nil {
			t.Fatalf("holdfast %v: %v\n%s", key, err, out)
		}
	}
	out, err := s.listKeys(t).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "laptop\ttls-client\tES256\ttpm\nweb\ttls-server\tES384\ttpm\n"
	if string(out) != want {
		t.Errorf("list-keys.py printed\n%swant\n%s", out, want)
	}
}

// TestListKeysInPythonDenied runs the example as another user, with the doors of
// the file system open: the agent itself turns the caller away.
func TestListKeysInPythonDenied(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("needs root, to become another user")
	}
	s := startAgent(t)
	for path, mode := range map[string]os.FileMode{filepath.Dir(s.socket): 0o711, s.socket: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	source, err := os.Open(filepath.Join(root(t), "packaging/examples/list-keys.py"))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	other := exec.Command("/usr/bin/python3", "-")
	other.Stdin = source
	other.Dir = "/"
	other.Env = []string{"HOLDFAST_SOCKET=" + s.socket}
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 47123, Gid: 47123}}
	out, err := other.CombinedOutput()
	if want := "its policy does not name this user"; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("as uid 47123: %v, %q; want a failure with %q", err, out, want)
	}
}
