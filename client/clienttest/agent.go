// Package clienttest is a stand-in for the agent in tests of its clients: it
// speaks the agent's wire on a socket of its own, with keys in memory, and fails
// when a test tells it to. Start at [Start].
//
// It decides nothing and protects nothing. The tests of the agent itself use
// the real one.
package clienttest

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
	"holdfast/internal/metrics"
	"holdfast/internal/varlink"
)

// Agent is a stand-in for an agent. It answers with Status, Policy, Records, Metrics
// and Cards, which may be set before the first call. With Person set, it answers as an
// agent that can prompt a user for a PIN.
type Agent struct {
	Socket  string
	Status  agentwire.GetStatusReply
	Policy  agentwire.CheckPolicyReply
	Records []string
	Metrics *metrics.Registry
	Cards   []agentwire.Card
	Person  bool

	tb       testing.TB
	mu       sync.Mutex
	keys     map[string]*key
	made     map[string]string        // names by request id
	sealed   map[string]sealed        // by name
	failures map[string]error         // by method
	lose     map[string]int           // replies to lose, by method
	held     map[string]chan struct{} // closed when calls of the method may continue
	watchers map[chan agentwire.WatchReply]bool
	calls    []Call
	listener net.Listener
	stop     context.CancelFunc
	serving  sync.WaitGroup
}

// Call is one call that the stand-in received.
type Call struct {
	Method     string
	Parameters json.RawMessage
}

// Start starts a stand-in without keys. It stops when the test ends.
func Start(tb testing.TB) *Agent {
	tb.Helper()
	dir, err := os.MkdirTemp("", "holdfast") // tb.TempDir can be longer than a socket's path may be
	if err != nil {
		tb.Fatal(err)
	}
	a := &Agent{
		Socket:  filepath.Join(dir, "agent.sock"),
		Metrics: metrics.New(),
		tb:      tb, keys: map[string]*key{}, made: map[string]string{}, failures: map[string]error{}, lose: map[string]int{},
		held: map[string]chan struct{}{}, watchers: map[chan agentwire.WatchReply]bool{},
	}
	a.Status = agentwire.GetStatusReply{
		Version: "test", PID: os.Getpid(), Started: time.Now().UTC(), Mode: "user", Policy: "built-in", Audit: "/dev/null",
		Caller:  agentwire.Caller{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), PID: int32(os.Getpid())},
		Devices: []agentwire.Device{{Backend: "tpm", Device: "swtpm:/test", State: string(keys.StateReady), Software: true}},
	}
	a.Resume()
	tb.Cleanup(func() {
		a.Stop()
		os.RemoveAll(dir)
	})
	return a
}

// Resume listens again after Stop.
func (a *Agent) Resume() {
	a.tb.Helper()
	listener, err := net.Listen("unix", a.Socket)
	if err != nil {
		a.tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	a.listener, a.stop = listener, stop
	service := a.service()
	a.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			a.serving.Go(func() {
				defer context.AfterFunc(ctx, func() { conn.Close() })()
				service.ServeConn(ctx, conn)
			})
		}
	})
}

// Stop closes the socket and every connection, as if the agent had been killed,
// and returns when nothing of it runs.
func (a *Agent) Stop() {
	a.listener.Close()
	a.stop()
	a.serving.Wait()
}

// Fail makes every later call of method fail with err; nil lets it work again.
func (a *Agent) Fail(method string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failures[method] = err
}

// Lose carries out the next n calls of method but closes the connection where
// the reply should be.
func (a *Agent) Lose(method string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lose[method] = n
}

// Calls returns the calls of method so far, or all of them when it is empty.
func (a *Agent) Calls(method string) []Call {
	a.mu.Lock()
	defer a.mu.Unlock()
	var calls []Call
	for _, c := range a.calls {
		if method == "" || c.Method == method {
			calls = append(calls, c)
		}
	}
	return calls
}

var errLost = errors.New("the reply was lost on purpose")

// handle turns f into a method that records its calls and fails as told.
func handle[P, R any](a *Agent, f func(P) (R, error)) varlink.Method {
	return func(ctx context.Context, call *varlink.Call) error {
		var p P
		if err := call.Decode(&p); err != nil {
			return err
		}
		raw, _ := json.Marshal(p)
		if err := a.arrived(ctx, Call{call.Method, raw}); err != nil {
			return err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if err := a.failures[call.Method]; err != nil {
			return sendable(err)
		}
		reply, err := f(p)
		if a.lose[call.Method] > 0 {
			a.lose[call.Method]--
			return errLost
		}
		if err != nil {
			return sendable(err)
		}
		return call.Reply(reply)
	}
}

// arrived records a call, and waits where its method is held.
func (a *Agent) arrived(ctx context.Context, c Call) error {
	a.mu.Lock()
	a.calls = append(a.calls, c)
	held := a.held[c.Method]
	a.mu.Unlock()
	if held == nil {
		return nil
	}
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Hold makes calls of method wait until release is called, like a slow device or a
// user who does not answer.
func (a *Agent) Hold(method string) (release func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := make(chan struct{})
	a.held[method] = held
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.held, method)
		close(held)
	})
}

// sendable returns err as it goes over the wire.
func sendable(err error) error {
	if _, ok := err.(*varlink.Error); ok {
		return err
	}
	name, parameters := agentwire.Errors().FromError(err)
	raw, _ := json.Marshal(parameters)
	return &varlink.Error{Name: name, Parameters: raw}
}
