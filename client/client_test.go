package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/client"
	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/varlink"
)

// TestMain gives the examples their agent, keys and server, and at the end looks
// for goroutines that were left behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(examples{m}) }

// dial connects to the agent at socket for the length of the test.
func dial(t *testing.T, socket string) *client.Client {
	t.Helper()
	c, err := client.Dial(context.Background(), &client.Options{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestMethods(t *testing.T) {
	agent := clienttest.Start(t)
	agent.Policy = agentwire.CheckPolicyReply{Allowed: true, Rule: "policy.yaml:3", Reason: "because"}
	agent.Records = []string{`{"a":1}`, `{"b":2}`}
	c := dial(t, agent.Socket)
	ctx := context.Background()

	created, err := c.CreateKey(ctx, agentwire.CreateKeyParameters{Name: "alice", Purpose: "tls-client"})
	if err != nil || created.Name != "alice" {
		t.Fatalf("CreateKey: got %q, %v", created.Name, err)
	}
	if _, err := c.AdoptKey(ctx, agentwire.AdoptKeyParameters{Name: "bob", Purpose: "tls-server", File: "x", AllowImported: true}); err != nil {
		t.Fatalf("AdoptKey: %v", err)
	}
	if list, err := c.Keys(ctx, false); err != nil || len(list) != 2 || list[1].Name != "bob" || !list[1].Imported {
		t.Errorf("Keys: got %v, %v, want alice and an imported bob", list, err)
	}
	if file, err := c.ExportKey(ctx, "alice"); err != nil || !strings.Contains(file, "TSS2") {
		t.Errorf("ExportKey: got %q, %v", file, err)
	}
	if k, err := c.BindKey(ctx, "alice", []agentwire.Server{{Address: "api:443", CA: "pem"}}); err != nil || len(k.Servers) != 1 {
		t.Errorf("BindKey: got %v, %v", k.Servers, err)
	}
	if k, err := c.InstallCertificate(ctx, "alice", [][]byte{{1}, {2}}); err != nil || len(k.Chain) != 2 {
		t.Errorf("InstallCertificate: got %v, %v", k.Chain, err)
	}
	if u, err := c.Unlock(ctx, agentwire.UnlockKeyParameters{Name: "alice", PIN: []byte(clienttest.PIN)}); err != nil || u.UnlockedUntil.IsZero() {
		t.Errorf("Unlock: got %v, %v", u, err)
	}
	if err := c.Lock(ctx, ""); err != nil {
		t.Errorf("Lock: %v", err)
	}
	if s, err := c.Status(ctx); err != nil || s.Version != "test" || !s.Devices[0].Software {
		t.Errorf("Status: got %+v, %v", s, err)
	}
	if p, err := c.CheckPolicy(ctx, agentwire.CheckPolicyParameters{UID: 1, Operation: "list"}); err != nil || p != agent.Policy {
		t.Errorf("CheckPolicy: got %+v, %v", p, err)
	}
	agent.Metrics.Counter("seen_total", "Seen.").Add(3)
	if m, err := c.Metrics(ctx); err != nil || len(m) != 1 || m[0].Samples[0].Value != 3 {
		t.Errorf("Metrics: got %+v, %v", m, err)
	}
	if r, err := c.TailAudit(ctx, 2); err != nil || len(r) != 2 {
		t.Errorf("TailAudit: got %v, %v", r, err)
	}
	if v, err := c.VerifyAudit(ctx); err != nil || v.Records != 2 {
		t.Errorf("VerifyAudit: got %v, %v", v, err)
	}
	if err := c.DeleteKey(ctx, "bob"); err != nil {
		t.Errorf("DeleteKey: %v", err)
	}
	if _, err := c.GetKey(ctx, "bob"); fault.KindOf(err) != fault.Denied {
		t.Errorf("GetKey of a deleted key: got %v, want denied", err)
	}
}

func TestWatch(t *testing.T) {
	c := dial(t, clienttest.Start(t).Socket)
	enough := errors.New("enough")
	err := c.Watch(context.Background(), func(w agentwire.WatchReply) error {
		if w.What != "policy" {
			t.Errorf("got %q, want policy", w.What)
		}
		return enough
	})
	if err != enough {
		t.Errorf("got %v, want what the callback returned", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = c.Watch(ctx, func(agentwire.WatchReply) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

// Every kind of failure arrives with its kind, text, hint and time.
func TestErrorKinds(t *testing.T) {
	agent := clienttest.Start(t)
	c := dial(t, agent.Socket)
	for _, kind := range fault.Kinds() {
		sent := &fault.Error{Kind: kind, Message: "a fact", Hint: "a step", RetryAfter: 70 * time.Millisecond}
		agent.Fail(agentwire.GetStatus, sent)
		_, err := c.Status(context.Background())
		got, ok := fault.AsError(err)
		if !ok || *got != *sent {
			t.Errorf("%s: got %+v, want %+v", kind, err, sent)
		}
	}
}

func TestOtherErrors(t *testing.T) {
	tests := map[string]struct {
		sent *varlink.Error
		want fault.Kind
		text string
	}{
		"unknown method":    {varlink.NewError(varlink.MethodNotFound, "method", "io.holdfast.Agent.New"), fault.Unsupported, "io.holdfast.Agent.New"},
		"unknown parameter": {varlink.NewError(varlink.InvalidParameter, "parameter", "evidence"), fault.BadRequest, "evidence"},
		"a later kind":      {&varlink.Error{Name: "io.holdfast.Agent.OnFire"}, fault.Internal, "OnFire"},
	}
	agent := clienttest.Start(t)
	c := dial(t, agent.Socket)
	for name, test := range tests {
		agent.Fail(agentwire.GetStatus, test.sent)
		_, err := c.Status(context.Background())
		if fault.KindOf(err) != test.want || !strings.Contains(fmt.Sprint(err), test.text) {
			t.Errorf("%s: got %v (%s), want %s naming %q", name, err, fault.KindOf(err), test.want, test.text)
		}
	}
}

// A call that only asks, or that carries a request id, survives a lost reply.
func TestRepeat(t *testing.T) {
	agent := clienttest.Start(t)
	c := dial(t, agent.Socket)
	agent.Lose(agentwire.CreateKey, 1)
	if _, err := c.CreateKey(context.Background(), agentwire.CreateKeyParameters{Name: "alice", Purpose: "tls-client"}); err != nil {
		t.Fatal(err)
	}
	calls := agent.Calls(agentwire.CreateKey)
	var first, second agentwire.CreateKeyParameters
	if len(calls) != 2 {
		t.Fatalf("got %d calls, want 2", len(calls))
	}
	json.Unmarshal(calls[0].Parameters, &first)
	json.Unmarshal(calls[1].Parameters, &second)
	if first.RequestID == "" || first.RequestID != second.RequestID {
		t.Errorf("request ids %q and %q, want one id twice", first.RequestID, second.RequestID)
	}
}

func TestRepeatOnlyOnce(t *testing.T) {
	agent := clienttest.Start(t)
	c := dial(t, agent.Socket)
	agent.Lose(agentwire.GetStatus, 3)
	_, err := c.Status(context.Background())
	var unreachable *client.UnreachableError
	if !errors.As(err, &unreachable) || unreachable.Hint == "" {
		t.Errorf("got %v, want an UnreachableError with a hint", err)
	}
	if n := len(agent.Calls(agentwire.GetStatus)); n != 2 {
		t.Errorf("got %d calls, want 2", n)
	}
}

// A PIN is sent once, whatever happens: the try may have been spent.
func TestNoRepeat(t *testing.T) {
	agent := clienttest.Start(t)
	agent.AddKey("alice", keys.TLSClient, keys.ES256)
	c := dial(t, agent.Socket)
	agent.Lose(agentwire.UnlockKey, 1)
	agent.Lose(agentwire.DeleteKey, 1)
	if _, err := c.Unlock(context.Background(), agentwire.UnlockKeyParameters{Name: "alice", PIN: []byte("0000")}); err == nil {
		t.Error("Unlock: got no error")
	}
	if err := c.DeleteKey(context.Background(), "alice"); err == nil {
		t.Error("DeleteKey: got no error")
	}
	if u, d := len(agent.Calls(agentwire.UnlockKey)), len(agent.Calls(agentwire.DeleteKey)); u != 1 || d != 1 {
		t.Errorf("got %d and %d calls, want one each", u, d)
	}
}

// A call that must be sent once does not use an old connection.
func TestFreshConnection(t *testing.T) {
	agent := clienttest.Start(t)
	c := dial(t, agent.Socket)
	agent.Stop()
	agent.Resume()
	agent.AddKey("alice", keys.TLSClient, keys.ES256)
	if err := c.DeleteKey(context.Background(), "alice"); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}

func TestRestart(t *testing.T) {
	agent := clienttest.Start(t)
	c := dial(t, agent.Socket)
	agent.Stop()
	_, err := c.Status(context.Background())
	var unreachable *client.UnreachableError
	if !errors.As(err, &unreachable) || unreachable.Socket != agent.Socket {
		t.Errorf("while stopped: got %v, want an UnreachableError", err)
	}
	agent.Resume()
	if _, err := c.Status(context.Background()); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}

func TestConcurrentCalls(t *testing.T) {
	agent := clienttest.Start(t)
	c := dial(t, agent.Socket)
	var calls sync.WaitGroup
	for range 100 {
		calls.Go(func() {
			if _, err := c.Status(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
}

// A program that starts before the agent finds it later.
func TestNewBeforeTheAgent(t *testing.T) {
	agent := clienttest.Start(t)
	agent.Stop()
	c := client.New(&client.Options{Socket: agent.Socket})
	defer c.Close()
	var unreachable *client.UnreachableError
	if _, err := c.Status(context.Background()); !errors.As(err, &unreachable) {
		t.Errorf("without an agent: got %v, want an UnreachableError", err)
	}
	agent.Resume()
	if _, err := c.Status(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestClosed(t *testing.T) {
	c := dial(t, clienttest.Start(t).Socket)
	c.Close()
	if _, err := c.Status(context.Background()); err == nil {
		t.Error("got no error")
	}
}

// An agent closes on a caller whom its policy does not name before it reads.
func TestRefusedCaller(t *testing.T) {
	listener, path := listen(t)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			// Closing with the request unread, as the real agent does, and not before.
			waitReadable(t, conn)
			conn.Close()
		}
	})
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { listener.Close() })
	_, err := dial(t, path).Status(context.Background())
	if fault.KindOf(err) != fault.Denied {
		t.Errorf("got %v, want denied", err)
	}
}

// A request that was not read was not carried out: even a PIN may be sent again, and a
// call that an agent cut off when it stopped is no denial.
func TestRepeatOfTheUnread(t *testing.T) {
	listener, path := listen(t)
	var serving sync.WaitGroup
	seen := make(chan struct{}, 3)
	serving.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		seen <- struct{}{}
		waitReadable(t, conn)
		listener.Close() // an agent that stops: first the socket, then the connections
		conn.Close()
	})
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { listener.Close() })
	c := client.New(&client.Options{Socket: path})
	t.Cleanup(func() { c.Close() })
	_, err := c.Unlock(context.Background(), agentwire.UnlockKeyParameters{Name: "alice", PIN: []byte("0000")})
	var unreachable *client.UnreachableError
	if !errors.As(err, &unreachable) {
		t.Errorf("got %v, want that nobody is there", err)
	}
	if len(seen) != 1 {
		t.Errorf("%d connections were accepted, want 1", len(seen))
	}
}

func TestCancel(t *testing.T) {
	listener, path := listen(t)
	t.Cleanup(func() { listener.Close() })
	c := dial(t, path)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := c.Status(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

// synced is a buffer for two goroutines.
type synced struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *synced) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *synced) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// An agent that hangs does not hang its clients.
func TestTimeout(t *testing.T) {
	listener, path := listen(t)
	t.Cleanup(func() { listener.Close() })
	c, err := client.Dial(context.Background(), &client.Options{Socket: path, Timeout: 20 * time.Millisecond})
	check(t, err)
	defer c.Close()
	_, err = c.Status(context.Background())
	var unreachable *client.UnreachableError
	if !errors.As(err, &unreachable) || !strings.Contains(unreachable.Reason, "no answer within 20ms") {
		t.Errorf("got %v, want an UnreachableError", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if _, err := c.Status(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &unreachable) {
		t.Errorf("got %v, want the deadline of the context", err)
	}
}

func listen(t *testing.T) (net.Listener, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "agent.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return listener, path
}

func waitReadable(t *testing.T, conn net.Conn) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Error(err)
		return
	}
	raw.Read(func(fd uintptr) bool {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return n > 0 || err != syscall.EAGAIN
	})
}
