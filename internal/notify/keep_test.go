package notify

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// received returns the next message, and the descriptor that comes with it.
func received(t *testing.T, conn *net.UnixConn) (string, *os.File) {
	t.Helper()
	text, control := make([]byte, 4096), make([]byte, 1024)
	n, m, _, _, err := conn.ReadMsgUnix(text, control)
	if err != nil {
		t.Fatal(err)
	}
	if m == 0 {
		return string(text[:n]), nil
	}
	messages, err := unix.ParseSocketControlMessage(control[:m])
	if err != nil {
		t.Fatal(err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Fatalf("got %v, %v", fds, err)
	}
	f := os.NewFile(uintptr(fds[0]), "kept")
	t.Cleanup(func() { f.Close() })
	return string(text[:n]), f
}

// A listener that the manager keeps stays open when the daemon has closed it, and the
// daemon's next process gets it.
func TestKeep(t *testing.T) {
	conn := manager(t)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := l.Addr().String()
	name := "kept-" + strings.ReplaceAll(address, ":", "-")
	if err := Keep(l); err != nil {
		t.Fatal(err)
	}
	state, f := received(t, conn)
	if want := "FDSTORE=1\nFDNAME=" + name; state != want || f == nil {
		t.Fatalf("got %q, %v; want %q and a descriptor", state, f, want)
	}
	l.Close()
	waiting, err := net.Dial("tcp4", address)
	if err != nil {
		t.Fatalf("while the daemon is away: %v", err)
	}
	waiting.Close()

	path := filepath.Join(t.TempDir(), "broker.sock")
	unit := unixSocket(t, syscall.SOCK_STREAM, path, 0o600)
	wanted := "broker=" + path + "=600 loopback=loopback=0"
	for _, test := range []struct {
		wanted, environment string
		files               []*os.File
		want                string
	}{
		{wanted + " kept=loopback=0", "LISTEN_FDS=2 LISTEN_FDNAMES=broker:" + name, []*os.File{unit, f}, "2 sockets, LISTEN_FDS \"\"\n" + address},
		{wanted + " kept=loopback=0", "LISTEN_FDS=1 LISTEN_FDNAMES=" + name, []*os.File{f}, "1 sockets, LISTEN_FDS \"\"\n" + address},
		{wanted, "LISTEN_FDS=2 LISTEN_FDNAMES=broker:" + name, []*os.File{unit, f}, "socket activation: file descriptor 4 (" + name + "): is not one of broker, loopback"},
	} {
		if got := withSockets(t, test.wanted, test.environment, test.files...); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.environment, got, test.want)
		}
	}
	if err := Unkeep(l); err != nil {
		t.Fatal(err)
	}
	if state, _ := received(t, conn); state != "FDSTOREREMOVE=1\nFDNAME="+name {
		t.Errorf("got %q", state)
	}
}

func TestKeepWithoutAManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := Keep(l); err != nil {
		t.Error(err)
	}
}
