package keyring

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

const listenVariable = "KEYRING_TEST_LISTEN"

func TestMain(m *testing.M) {
	if name := os.Getenv(listenVariable); name != "" {
		os.Exit(listen(name))
	}
	goleak.VerifyTestMain(m)
}

// listen listens until its input ends.
func listen(name string) int {
	l, err := net.Listen("unix", name)
	if err != nil {
		return 1
	}
	defer l.Close()
	os.Stdout.WriteString("listening\n")
	os.Stdin.Read(make([]byte, 1))
	return 0
}

// listenAs has a process of another user listen.
func listenAs(t *testing.T, uid uint32, name string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "keyring-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.ReadFile("/proc/self/exe")
	program := filepath.Join(dir, "test")
	if err := errors.Join(err, os.WriteFile(program, self, 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = []string{listenVariable + "=" + name}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatalf("as uid %d (this test needs root): %v", uid, err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("it does not listen: %q, %v", line, err)
	}
}

// A socket on which another user listens is not the session's bus, and gets no
// secret.
func TestBusOfAnotherUser(t *testing.T) {
	dir, err := os.MkdirTemp("", "keyring-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "bus")
	listenAs(t, 65533, path)
	listenAs(t, 65533, "@"+path)
	for _, address := range []string{"unix:path=" + path, "unix:abstract=" + path, "unix:path=" + path + ",guid=1;unix:path=/none"} {
		t.Setenv("DBUS_SESSION_BUS_ADDRESS", address)
		_, err := New().Get(t.Context(), "name")
		if !errors.Is(err, ErrNoService) || !strings.Contains(err.Error(), "belongs to uid 65533") {
			t.Errorf("%s: got %v", address, err)
		}
	}
}
