package door_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/internal/door"
	"holdfast/internal/peer"
)

// connectVariable makes this program a caller that connects and ends at once.
const connectVariable = "HOLDFAST_TEST_CONNECT"

func TestMain(m *testing.M) {
	if path := os.Getenv(connectVariable); path != "" {
		if _, err := net.Dial("unix", path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// rejection is one call of Options.Rejected.
type rejection struct {
	uid    uint32
	reason door.Reason
	detail string
}

// rig is a door on one socket. Its handler greets the caller with one byte and
// reads until the caller or the context ends the connection.
type rig struct {
	t        *testing.T
	door     *door.Door
	socket   *door.Socket
	path     string
	rejected chan rejection
	policy   string // why nobody is admitted; empty admits everybody
	served   chan error
}

func newRig(t *testing.T, o door.Options) *rig {
	t.Helper()
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "d.sock"), rejected: make(chan rejection, 8), served: make(chan error, 1)}
	o.Rejected = func(id peer.Identity, reason door.Reason, detail string) {
		r.rejected <- rejection{id.UID, reason, detail}
	}
	r.door, r.socket = door.New(o), listen(t, r.path)
	return r
}

// serve runs Serve until the returned function is called, or the test ends.
func (r *rig) serve() (stop func()) {
	ctx, stop := context.WithCancel(context.Background())
	admits := func(peer.Identity) (bool, string) { return r.policy == "", r.policy }
	go func() { r.served <- r.door.Serve(ctx, r.socket, admits, greet) }()
	r.t.Cleanup(func() {
		stop()
		r.door.Close()
		r.door.Wait()
	})
	return stop
}

func greet(ctx context.Context, conn *net.UnixConn, p *peer.Peer) error {
	if p.PID != int32(os.Getpid()) {
		return fmt.Errorf("the caller is process %d", p.PID)
	}
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	conn.Write([]byte{'!'})
	_, err := conn.Read(make([]byte, 1))
	return err
}

func (r *rig) dial() net.Conn {
	r.t.Helper()
	conn, err := net.Dial("unix", r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	return conn
}

// greeted returns nil when the door serves conn, and io.EOF when it closes conn.
func greeted(conn net.Conn) error {
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

// wantRejection wants conn closed, and why.
func (r *rig) wantRejection(conn net.Conn, want rejection) {
	r.t.Helper()
	if err := greeted(conn); !errors.Is(err, io.EOF) {
		r.t.Fatalf("got %v, want the connection closed", err)
	}
	if got := <-r.rejected; got != want {
		r.t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAdmittedCallersAreServed(t *testing.T) {
	r := newRig(t, door.Options{})
	r.serve()
	first, second := r.dial(), r.dial()
	if err := errors.Join(greeted(first), greeted(second)); err != nil {
		t.Fatal(err)
	}
	if got := r.door.Connections(); got != 2 {
		t.Errorf("got %d connections, want 2", got)
	}
}

func TestPolicyRejects(t *testing.T) {
	r := newRig(t, door.Options{})
	r.policy = "no rule names this caller"
	r.serve()
	r.wantRejection(r.dial(), rejection{uint32(os.Getuid()), door.Policy, r.policy})
	if got := r.door.Connections(); got != 0 {
		t.Errorf("got %d connections, want 0", got)
	}
}

// A place becomes free when a connection closes.
func TestConnectionsAreLimited(t *testing.T) {
	for name, o := range map[string]door.Options{"of one uid": {PerUID: 2}, "of all uids": {Total: 2}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, o)
			r.serve()
			first := r.dial()
			if err := errors.Join(greeted(first), greeted(r.dial())); err != nil {
				t.Fatal(err)
			}
			r.wantRejection(r.dial(), rejection{uint32(os.Getuid()), door.Limit, "too many connections"})
			first.Close()
			for deadline := time.Now().Add(10 * time.Second); r.door.Connections() > 1; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the closed connection still counts")
				}
			}
			if err := greeted(r.dial()); err != nil {
				t.Errorf("after a connection closed: %v", err)
			}
		})
	}
}

// A caller whose process has ended is not served: no process would get the reply.
func TestEndedCallerIsRejected(t *testing.T) {
	r := newRig(t, door.Options{})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), connectVariable+"="+r.path)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.serve() // the connection waited in the socket's backlog
	if got := <-r.rejected; got.reason != door.Unidentified || !strings.Contains(got.detail, fmt.Sprint("pid ", child.Process.Pid)) {
		t.Errorf("got %+v, want process %d unidentified", got, child.Process.Pid)
	}
}

// A caller that loses an idle connection to a daemon that stops finds nobody
// listening. If the socket still listened, the next connection would be closed
// unread too, which is how a rejection looks.
func TestSocketClosesBeforeConnectionsDo(t *testing.T) {
	r := newRig(t, door.Options{})
	stop := r.serve()
	idle := r.dial()
	if err := greeted(idle); err != nil {
		t.Fatal(err)
	}
	release := r.socket.Hold()
	stop()
	idle.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if err := greeted(idle); !os.IsTimeout(err) {
		t.Errorf("the socket is open, and the idle connection reads %v", err)
	}
	release()
	idle.SetReadDeadline(time.Now().Add(10 * time.Second))
	if err := greeted(idle); !errors.Is(err, io.EOF) {
		t.Errorf("the idle connection reads %v, want its end", err)
	}
	if late, err := net.Dial("unix", r.path); err == nil {
		late.Close()
		t.Error("the connection was closed, and the socket took another one")
	}
	if err := <-r.served; err != nil {
		t.Error(err)
	}
}

func TestClosedDoorTakesNoSocket(t *testing.T) {
	r := newRig(t, door.Options{})
	r.door.Close()
	r.serve()
	select {
	case err := <-r.served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a closed door serves")
	}
	if conn, err := net.Dial("unix", r.path); err == nil {
		conn.Close()
		t.Error("the socket still listens")
	}
}

// Close lets connections finish, and Wait waits for them.
func TestWaitReturnsAfterTheLastConnection(t *testing.T) {
	r := newRig(t, door.Options{})
	r.serve()
	conn := r.dial()
	if err := greeted(conn); err != nil {
		t.Fatal(err)
	}
	r.door.Close()
	if err := <-r.served; err != nil {
		t.Error(err)
	}
	waited := make(chan int, 1)
	go func() { r.door.Wait(); waited <- r.door.Connections() }()
	if _, err := conn.Write([]byte{'.'}); err != nil { // the connection is still served
		t.Error(err)
	}
	if got := <-waited; got != 0 {
		t.Errorf("Wait returned with %d connections open", got)
	}
}

func TestReplacedSocketIsReported(t *testing.T) {
	replaced := make(chan error, 2)
	r := newRig(t, door.Options{Replaced: func(path string, err error) { replaced <- errors.Join(err, errors.New(path)) }})
	r.serve()
	if err := greeted(r.dial()); err != nil { // Serve runs
		t.Fatal(err)
	}
	r.door.CheckSockets()
	if len(replaced) != 0 {
		t.Errorf("an untouched socket was reported: %v", <-replaced)
	}
	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	r.door.CheckSockets()
	if got := (<-replaced).Error(); got != r.path {
		t.Errorf("got %q, want %q", got, r.path)
	}
	if err := greeted(r.dial()); err != nil {
		t.Errorf("after the check: %v", err)
	}
}
