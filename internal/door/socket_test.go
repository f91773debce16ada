package door_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/door"
)

func listen(t *testing.T, path string) *door.Socket {
	t.Helper()
	s, err := door.Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestSecondDaemonFindsTheFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	listen(t, path)
	before, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = door.Listen(path, 0o600)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("already running, pid %d", os.Getpid())) {
		t.Errorf("got %v, want the first one's pid", err)
	}
	after, err := os.Lstat(path)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the first daemon's socket was touched: %v", err)
	}
}

func TestSocketOfADeadDaemonIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	listen(t, path)
	if _, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	}
}

func TestOtherFileStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := door.Listen(path, 0o600); err == nil {
		t.Error("listened in place of a file")
	}
	if data, _ := os.ReadFile(path); string(data) != "mine" {
		t.Errorf("the file is now %q", data)
	}
}

func TestSocketHasTheMode(t *testing.T) {
	for _, mode := range []fs.FileMode{0o600, 0o660, 0o666} {
		path := filepath.Join(t.TempDir(), "agent.sock")
		s, err := door.Listen(path, mode)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("got %v (%v), want %v", info.Mode().Perm(), err, mode)
		}
		s.Close()
		if _, err := os.Lstat(path); err == nil {
			t.Error("the socket is still there after Close")
		}
	}
}

func TestCheckListensAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	s := listen(t, path)
	if replaced, err := s.Check(); replaced || err != nil {
		t.Errorf("Check of an untouched socket: %v, %v", replaced, err)
	}
	accepted := make(chan error, 1)
	go func() {
		conn, err := s.Accept()
		if err == nil {
			conn.Close()
		}
		accepted <- err
	}()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if replaced, err := s.Check(); !replaced || err != nil {
		t.Errorf("Check after the removal: %v, %v", replaced, err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := <-accepted; err != nil {
		t.Errorf("the call of Accept that waited: %v", err)
	}
	s.Close()
	if _, err := s.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v, want net.ErrClosed", err)
	}
}

// The daemon neither locks, replaces nor removes a socket of systemd's.
func TestActivatedSocketStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	s := door.Activated(l)
	if s.Path() != path {
		t.Errorf("got path %s", s.Path())
	}
	s.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket is gone: %v", err)
	}
}
