package ticket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"holdfast/test/role"

	"golang.org/x/sys/unix"
)

// serve listens on TCP.
func serve(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// accepted accepts one connection and returns its two ends.
func accepted(t *testing.T, l net.Listener) (client, server netip.AddrPort, conn net.Conn) {
	t.Helper()
	l.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Second))
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.RemoteAddr().(*net.TCPAddr).AddrPort(), conn.LocalAddr().(*net.TCPAddr).AddrPort(), conn
}

// held starts a process that takes steps, runs a plugin and gets a ticket.
func held(t *testing.T, steps ...string) (*role.Process, *Holder) {
	t.Helper()
	w, p := plugin(t, steps...)
	_, h := issue(t, table(t, Options{}), p, "prod")
	return w, h
}

func TestOwns(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "127.9.8.7:0"} {
		tcp := serve(t, "tcp", address)
		_, h := held(t, "dial="+tcp.Addr().String())
		client, server, _ := accepted(t, tcp)
		if err := h.Owns(client, server); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// An IPv6 socket that speaks IPv4, and a listener that takes both.
func TestOwnsMapped(t *testing.T) {
	tcp := serve(t, "tcp4", "127.0.0.1:0")
	_, h := held(t, fmt.Sprintf("mapped=%d", tcp.Addr().(*net.TCPAddr).Port))
	client, server, _ := accepted(t, tcp)
	if err := h.Owns(client, server); err != nil {
		t.Error(err)
	}
	mapped := netip.AddrPortFrom(netip.AddrFrom16(client.Addr().As16()), client.Port())
	if err := h.Owns(mapped, server); err != nil {
		t.Error(err)
	}
}

func TestAnotherProcessOfTheUser(t *testing.T) {
	tcp := serve(t, "tcp", "127.0.0.1:0")
	w, h := held(t)
	start(t, "dial="+tcp.Addr().String(), "wait")
	client, server, _ := accepted(t, tcp)
	wantDenied(t, h.Owns(client, server), "does not own the connection", fmt.Sprintf("the plugin's parent was %d", w.Pid()))
}

// The child of the ticket's process is another process.
func TestAChildOfTheProcess(t *testing.T) {
	tcp := serve(t, "tcp", "127.0.0.1:0")
	l, path := role.Listen(t)
	start(t, "shell="+path, "dial="+tcp.Addr().String(), "wait")
	client, server, _ := accepted(t, tcp)
	_, h := issue(t, table(t, Options{}), identify(t, l), "prod")
	err := h.Owns(client, server)
	wantDenied(t, err, "does not own the connection", "the plugin's parent was "+fmt.Sprint(h.Process.PID)+" sh")
	wantDenied(t, err, "", "no shell")
}

func TestAnotherUser(t *testing.T) {
	role.NeedRoot(t)
	tcp := serve(t, "tcp", "127.0.0.1:0")
	_, h := held(t)
	start(t, "setuid=4321", "dial="+tcp.Addr().String(), "wait")
	client, server, _ := accepted(t, tcp)
	wantDenied(t, h.Owns(client, server), "another user", "")
	if uid, err := OwnerUID(client, server); uid != 4321 || err != nil {
		t.Errorf("got %d, %v, want uid 4321", uid, err)
	}
}

// A user whose own ticket it is, with root as the broker.
func TestOwnsOfAnotherUsersProcess(t *testing.T) {
	role.NeedRoot(t)
	tcp := serve(t, "tcp", "127.0.0.1:0")
	_, h := held(t, "setuid=4321", "dial="+tcp.Addr().String())
	client, server, _ := accepted(t, tcp)
	if err := h.Owns(client, server); err != nil || h.Process.UID != 4321 {
		t.Errorf("got %v for uid %d", err, h.Process.UID)
	}
}

// A broker without privileges checks the owner of a connection.
func TestDescriptorsThatCannotBeRead(t *testing.T) {
	role.NeedRoot(t)
	w := start(t, "undumpable", "say=ready", "wait")
	w.Line()
	cmd := exec.Command(role.Program(t), "setuid=4321", fmt.Sprintf("look=%d", w.Pid()))
	cmd.Env = role.Environ("steps")
	text, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(text), "denied: the descriptors of process") || !strings.Contains(string(text), "not dumpable") {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestTooManyDescriptors(t *testing.T) {
	w := start(t, "descriptors=2000", "say=ready", "wait")
	w.Line()
	_, err := hasDescriptor(w.Pid(), 1, 1000)
	wantDenied(t, err, "more than 1000 descriptors", "close")
	if found, err := hasDescriptor(w.Pid(), 1, 3000); found || err != nil {
		t.Errorf("got %v, %v, want that there is none", found, err)
	}
}

func TestOwnsOfAnEndedProcess(t *testing.T) {
	tcp := serve(t, "tcp", "127.0.0.1:0")
	w, h := held(t, "dial="+tcp.Addr().String())
	client, server, _ := accepted(t, tcp)
	w.Kill()
	wantDenied(t, h.Owns(client, server), "has ended", "not through a shell")
}

// FIN_WAIT2 and TIME_WAIT: the kernel no longer knows whose socket it is. Where a
// socket listens at the client's address, it answers with that one.
func TestConnectionsThatEnd(t *testing.T) {
	tcp := serve(t, "tcp", "127.0.0.1:0")
	l, path := role.Listen(t)
	w := start(t, "dial="+tcp.Addr().String(), "plugin="+path, "signal", "hangup", "say=closed", "wait")
	client, server, conn := accepted(t, tcp)
	_, h := issue(t, table(t, Options{}), identify(t, l), "prod")
	if got := w.Line(); got != client.String() {
		t.Fatalf("got %q, want its address %v", got, client)
	}
	if err := h.Owns(client, server); err != nil {
		t.Fatal(err)
	}
	if err := w.Cmd.Process.Signal(unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	w.Line()
	wantDenied(t, h.Owns(client, server), "no longer established", "")
	conn.Close()
	wantDenied(t, h.Owns(client, server), "", "")
	nobody := netip.AddrPortFrom(client.Addr(), 1)
	wantDenied(t, h.Owns(nobody, server), "cannot be determined", "network namespace")
	wantDenied(t, h.Owns(server, nobody), "no longer established", "") // answered with the listener
}

func TestJoins(t *testing.T) {
	a, b := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2")
	good := socket{state: stateEstablished, client: a, server: b, inode: 1}
	if !good.joins(a, b) {
		t.Error("an established connection is refused")
	}
	for state := uint8(0); state < 20; state++ {
		s := good
		if s.state = state; s.joins(a, b) != (state == stateEstablished) {
			t.Errorf("state %d is judged wrongly", state)
		}
	}
	for _, s := range []socket{
		{state: 1, client: b, server: b, inode: 1}, {state: 1, client: a, server: a, inode: 1}, {state: 1, client: a, server: b},
	} {
		if s.joins(a, b) {
			t.Errorf("%+v passes", s)
		}
	}
}

func TestOnlyLoopback(t *testing.T) {
	_, h := held(t)
	loop, far := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("192.0.2.1:1")
	wantDenied(t, h.Owns(loop, far), "loopback", "")
	wantDenied(t, h.Owns(far, loop), "loopback", "")
	wantDenied(t, h.Owns(loop, netip.AddrPort{}), "loopback", "")
}

func TestParseAnswerRefuses(t *testing.T) {
	good := answer(t)
	if s, err := parseAnswer(good); err != nil || s.state != stateEstablished || s.inode == 0 {
		t.Fatalf("got %+v, %v", s, err)
	}
	for n := range good {
		if s, err := parseAnswer(good[:n]); err == nil {
			t.Errorf("cut to %d: got %+v", n, s)
		}
	}
	for name, change := range map[string]func(b []byte){
		"kind":     func(b []byte) { binary.NativeEndian.PutUint16(b[4:], 99) },
		"sequence": func(b []byte) { b[8]++ },
		"size":     func(b []byte) { binary.NativeEndian.PutUint32(b, 1<<31) },
		"family":   func(b []byte) { b[headerSize] = 1 },
		"error":    func(b []byte) { binary.NativeEndian.PutUint16(b[4:], unix.NLMSG_ERROR) },
	} {
		b := append([]byte(nil), good...)
		change(b)
		if s, err := parseAnswer(b); err == nil {
			t.Errorf("%s: got %+v", name, s)
		}
	}
	failed := make([]byte, 36)
	binary.NativeEndian.PutUint16(failed[4:], unix.NLMSG_ERROR)
	missing := -int32(unix.ENOENT)
	binary.NativeEndian.PutUint32(failed[16:], uint32(missing))
	if _, err := parseAnswer(failed); !errors.Is(err, unix.ENOENT) {
		t.Errorf("got %v, want ENOENT", err)
	}
}

// answer is what an answer looks like, laid out by hand.
func answer(t testing.TB) []byte {
	t.Helper()
	b := request(netip.MustParseAddrPort("127.0.0.1:40000"), netip.MustParseAddrPort("127.0.0.1:443"))
	b = append(b[:headerSize+4], b[headerSize+8:]...)
	b[headerSize], b[headerSize+1] = unix.AF_INET, stateEstablished
	b = append(b, make([]byte, 12)...)
	b = binary.NativeEndian.AppendUint32(b, 1000)
	b = binary.NativeEndian.AppendUint32(b, 4711)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

func FuzzParseAnswer(f *testing.F) {
	seeds := [][]byte{answer(f), answer(f)[:60], make([]byte, 36), nil}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseAnswer(b)
		if err == nil && (len(b) < answerSize || !s.client.IsValid() || !s.server.IsValid()) {
			t.Errorf("got %+v from %x", s, b)
		}
		if err != nil && s != (socket{}) {
			t.Errorf("got %+v and %v", s, err)
		}
	})
}

func BenchmarkOwns(b *testing.B) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer tcp.Close()
	conn, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		b.Fatal(err)
	}
	p := &process{Process: Process{UID: uint32(os.Getuid()), PID: int32(os.Getpid())}, pidfd: pidfd}
	defer p.close()
	h := &Holder{Process: p.Process, process: p}
	h.expireAt(time.Now().Add(time.Hour))
	client, server := conn.LocalAddr().(*net.TCPAddr).AddrPort(), conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	for b.Loop() {
		if err := h.Owns(client, server); err != nil {
			b.Fatal(err)
		}
	}
}
