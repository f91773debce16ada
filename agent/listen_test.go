package agent_test

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/agent"
	"holdfast/agent/keys"
	"holdfast/agent/wire"
)

func listen(t *testing.T, path string) *agent.Socket {
	t.Helper()
	s, err := agent.Listen(path, 0o600, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestSecondAgentFindsTheFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	listen(t, path)
	before, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = agent.Listen(path, 0o600, false)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("already running, pid %d", os.Getpid())) {
		t.Errorf("got %v, want the first one's pid", err)
	}
	after, err := os.Lstat(path)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the first agent's socket was touched: %v", err)
	}
}

func TestSocketOfADeadAgentIsReplaced(t *testing.T) {
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

func TestWhatIsNoSocketStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Listen(path, 0o600, false); err == nil {
		t.Error("listened in place of a file")
	}
	if data, _ := os.ReadFile(path); string(data) != "mine" {
		t.Errorf("the file is now %q", data)
	}
}

func TestSocketHasTheModeThatWasAsked(t *testing.T) {
	for _, mode := range []fs.FileMode{0o600, 0o660, 0o666} {
		path := filepath.Join(t.TempDir(), "agent.sock")
		s, err := agent.Listen(path, mode, false)
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

func TestReplacedSocketIsMadeAnew(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient) // the agent serves
	if replaced, err := r.use.Check(); replaced || err != nil {
		t.Errorf("Check of an untouched socket: %v, %v", replaced, err)
	}
	if err := os.Remove(r.socket); err != nil {
		t.Fatal(err)
	}
	squatter, err := net.Listen("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer squatter.Close()
	r.agent.CheckSockets()
	if last := r.auditLines()[len(r.auditLines())-1]; !strings.Contains(last, `"socket-replaced"`) || !strings.Contains(last, r.socket) {
		t.Errorf("the last record is %s", last)
	}
	if err := r.call(wire.ListKeys, wire.Empty{}, &wire.ListKeysReply{}); err != nil {
		t.Errorf("after Check: %v", err)
	}
}
