package bus

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"go.uber.org/goleak"

	"holdfast/test/desktop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dial(t *testing.T, address string, o Options) (*dbus.Conn, error) {
	t.Helper()
	o.UID = uint32(os.Geteuid())
	conn, err := Dial(t.Context(), address, o)
	if err == nil {
		t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

// TestDial connects to the first bus in the list that listens, and receives
// descriptors only where that was asked for.
func TestDial(t *testing.T) {
	bus := desktop.StartBus(t)
	for _, descriptors := range []bool{false, true} {
		conn, err := dial(t, "unix:path=/nowhere;"+bus.Address, Options{Descriptors: descriptors})
		if err != nil {
			t.Fatal(err)
		}
		if len(conn.Names()) == 0 || conn.SupportsUnixFDs() != descriptors {
			t.Errorf("descriptors %v: names %q, takes descriptors %v", descriptors, conn.Names(), conn.SupportsUnixFDs())
		}
	}
	if _, err := dial(t, "unix:path=/nowhere;unix:path=/neither", Options{}); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrAddress) {
		t.Errorf("no bus: %v", err)
	}
	if _, err := dial(t, bus.Address+";tcp:host=localhost,port=1", Options{}); !errors.Is(err, ErrAddress) {
		t.Errorf("a network in the list: %v", err)
	}
}

// TestEndsWithContext: a connection does not outlive its context.
func TestEndsWithContext(t *testing.T) {
	bus := desktop.StartBus(t)
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := Dial(ctx, bus.Address, Options{UID: uint32(os.Geteuid())})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-conn.Context().Done()
}

// listenAs has a process of another user listen at path, and accept nothing.
func listenAs(t *testing.T, uid uint32, path string) {
	t.Helper()
	const script = `import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1].replace("@", "\0"))
s.listen()
print("listening", flush=True)
sys.stdin.read()`
	cmd := exec.Command("/usr/bin/python3", "-c", script, path)
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

// TestListenerOfAnotherUser: a socket on which another user listens is never the
// bus, and nothing is sent to it.
func TestListenerOfAnotherUser(t *testing.T) {
	const stranger = 65533
	dir, err := os.MkdirTemp("", "bus-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "bus")
	listenAs(t, stranger, path)
	listenAs(t, stranger, "@"+path)
	good := desktop.StartBus(t).Address
	for _, address := range []string{"unix:path=" + path, "unix:abstract=" + path} {
		for name, err := range map[string]error{
			"dial":            second(Dial(t.Context(), address, Options{})),
			"check":           Check(t.Context(), address, 0),
			"check behind it": Check(t.Context(), good+";"+address, 0),
		} {
			if err == nil || !strings.Contains(err.Error(), "belongs to uid 65533") {
				t.Errorf("%s, %s: %v", address, name, err)
			}
		}
		if err := Check(t.Context(), address, stranger); err != nil {
			t.Errorf("the user's own bus: %v", err)
		}
	}
	if err := Check(t.Context(), good, stranger); os.Geteuid() == 0 && err != nil {
		t.Errorf("root's bus: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestSilentBus: a bus that accepts and says nothing is given up after [Timeout].
func TestSilentBus(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bus")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	began := time.Now()
	if _, err := dial(t, "unix:path="+path, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took < Timeout {
		t.Errorf("given up after %v", took)
	}
}
