package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/varlink"
	"holdfast/test/daemon"
	"holdfast/test/swtpm"
)

// TestIdleAndSlowCallers fills the other uid's share of connections, some of them
// silent and some sending a byte now and then. The owner does not notice, and the
// slow ones are closed.
func TestIdleAndSlowCallers(t *testing.T) {
	needRoot(t)
	t.Parallel()
	tpm, dir := swtpm.Start(t), daemon.Dir(t)
	a := daemon.Start(t, daemon.Options{Dir: dir, Device: tpm.Device(), Args: systemArgs(t, dir)})
	a.Open()
	c := connect(t, a)
	k := create(t, c, agentwire.CreateKeyParameters{Name: "k"})
	alone := latencies(t, 50, func() error { return sign(within(t, callLimit), c, k) })

	var idle []net.Conn
	for range 1000 {
		conn, err := a.DialAs(otherUID)
		if err != nil {
			t.Fatalf("connection %d: %v", len(idle), err)
		}
		defer conn.Close()
		idle = append(idle, conn)
	}
	begun := time.Now()
	slow, err := a.DialAs(otherUID + 1)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	closed := make(chan time.Duration, 1)
	go func() {
		for _, b := range []byte(`{"method":"io.holdfast.Agent.ListKeys","parameters":{},"more":false}`) {
			if _, err := slow.Write([]byte{b}); err != nil {
				break
			}
			time.Sleep(250 * time.Millisecond) // the pace of the attack
		}
		closed <- time.Since(begun)
	}()
	busy := latencies(t, 50, func() error { return sign(within(t, callLimit), c, k) })
	took := <-closed
	if took > 7*time.Second {
		t.Errorf("a request in pieces was read for %v, want at most 5 s and a little", took)
	}
	if refused := closedOf(idle); refused == 0 || refused == len(idle) {
		t.Errorf("%d of %d idle connections were refused, want those above the limit of a uid", refused, len(idle))
	} else {
		t.Logf("%d of %d idle connections refused; slow caller closed after %v", refused, len(idle), took)
	}
	checkSlower(t, alone, busy)
	poll(t, "the end of the idle connections", 40*time.Second, func() bool { return closedOf(idle) == len(idle) })
}

// everybody is a policy that lets every uid, root included, make and use keys.
const everybody = `version: 1
rules:
  - allow: [use, manage]
    uids: [0]
    owner: self
  - allow: [use, manage]
    anyone: true
    owner: self
`

// systemArgs makes an agent that serves every uid, each with keys of its own.
func systemArgs(t *testing.T, dir string) []string {
	t.Helper()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(everybody), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--system", "--admin-socket", filepath.Join(dir, "run", "admin.sock"), "--policy", policy}
}

// closedOf counts the connections that the agent has closed.
func closedOf(conns []net.Conn) int {
	n := 0
	for _, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(time.Microsecond))
		if _, err := conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			n++
		}
	}
	return n
}

// latencies calls f n times and returns how long each took, sorted.
func latencies(t *testing.T, n int, f func() error) []time.Duration {
	t.Helper()
	var list []time.Duration
	for range n {
		start := time.Now()
		if err := f(); err != nil {
			t.Fatal(err)
		}
		list = append(list, time.Since(start))
	}
	slices.Sort(list)
	return list
}

// checkSlower holds what a caller sees under attack to a small multiple of what
// it sees alone. The floor is for machines with other work to do.
func checkSlower(t *testing.T, alone, busy []time.Duration) {
	t.Helper()
	p90 := func(list []time.Duration) time.Duration { return list[len(list)*9/10] }
	if limit := max(5*p90(alone), 100*time.Millisecond); p90(busy) > limit {
		t.Errorf("p90 %v under attack, %v alone", p90(busy), p90(alone))
	}
	t.Logf("p90 %v alone, %v under attack", p90(alone), p90(busy))
}

// A device as slow as many chips, and what one caller may cost another there
// (figure G14 of the project's goals). The worst wait has room for a machine that
// is busy elsewhere; without fair turns it would be 256 signatures, or 13 s.
const (
	slowSign     = 50 * time.Millisecond
	politeMedian = 250 * time.Millisecond
	politeWorst  = time.Second
	flooders     = 310
)

// TestFlood has one uid keep as many requests waiting as it can. Another uid that
// asks now and then waits for one turn of the flooder's and its own, and what the
// flooder cannot have is refused by name.
func TestFlood(t *testing.T) {
	needRoot(t)
	tpm, dir := swtpm.Start(t), daemon.Dir(t) // not parallel: it measures
	proxy := swtpm.NewProxy(t, tpm, swtpm.Options{})
	a := daemon.Start(t, daemon.Options{Dir: dir, Device: proxy.Device(), Args: systemArgs(t, dir)})
	a.Open()
	c := connect(t, a)
	k := create(t, c, agentwire.CreateKeyParameters{Name: "k"})
	proxy.SetDelay(tpm2.TPMCCSign, slowSign)
	f := startFlood(t, a)
	poll(t, "the first refusal of the flooder", 20*time.Second, func() bool { return f.count(string(fault.Busy)) > 0 })

	var waits []time.Duration
	key, err := c.Key(within(t, callLimit), k.Name)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		start := time.Now()
		if err := signWith(within(t, callLimit), key, k); err != nil {
			t.Fatalf("the polite caller: %v", err)
		}
		waits = append(waits, time.Since(start))
		time.Sleep(50 * time.Millisecond) // polite
	}
	f.end()
	slices.Sort(waits)
	if waits[10] > politeMedian || waits[19] > politeWorst {
		t.Errorf("the polite caller waited %v, and once %v; want at most %v and %v", waits[10], waits[19], politeMedian, politeWorst)
	}
	for name, n := range f.bad {
		if name != string(fault.Busy) && name != string(fault.Deadline) {
			t.Errorf("%d failures of the flooder named %s", n, name)
		}
	}
	t.Logf("polite caller: median %v, worst %v; flooder with %d connections: %d signatures, %v", waits[10], waits[19], flooders, f.good, f.bad)
}

// flood is what one uid does to an agent.
type flood struct {
	mu   sync.Mutex
	good int
	bad  map[string]int
	stop context.CancelFunc
	done sync.WaitGroup
}

func startFlood(t *testing.T, a *daemon.Agent) *flood {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &flood{bad: map[string]int{}, stop: cancel}
	t.Cleanup(f.end)
	var conns []*varlink.Conn
	for range flooders {
		conn, err := a.DialAs(otherUID)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conns = append(conns, varlink.NewConn(conn))
	}
	// The flooder's own key, made before it floods.
	err := conns[0].Call(ctx, agentwire.CreateKey, agentwire.CreateKeyParameters{Name: "own", Purpose: string(keys.TLSClient)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, conn := range conns {
		f.done.Go(func() { f.work(ctx, conn) })
	}
	return f
}

func (f *flood) work(ctx context.Context, conn *varlink.Conn) {
	for ctx.Err() == nil {
		p := agentwire.SignTLSClientParameters{Key: "own", Scheme: string(keys.ECDSAP256SHA256), Message: verifyMessage()}
		err := conn.Call(ctx, agentwire.SignTLSClient, p, nil)
		if ctx.Err() != nil {
			return
		}
		f.mu.Lock()
		if err == nil {
			f.good++
		} else {
			f.bad[kindName(err)]++
		}
		f.mu.Unlock()
		if err != nil {
			time.Sleep(200 * time.Millisecond) // refused at once: callers that spin would measure the machine
		}
	}
}

// kindName names the error of a bare varlink call.
func kindName(err error) string {
	if err == nil {
		return "no error"
	}
	var e *varlink.Error
	if errors.As(err, &e) {
		if kind, ok := agentwire.KindOf(e.Name); ok {
			return string(kind)
		}
		return e.Name
	}
	return err.Error()
}

func (f *flood) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bad[name]
}

func (f *flood) end() {
	f.stop()
	f.done.Wait()
}

// TestNothingLeaks gives an agent good calls, half calls, garbage, refused
// callers and a TPM that goes away, and compares what it holds before and after.
func TestNothingLeaks(t *testing.T) {
	needRoot(t)
	t.Parallel()
	tpm, a, c, k := setup(t)
	a.Open()
	round := func(n int) {
		for range n {
			if err := sign(within(t, callLimit), c, k); err != nil {
				t.Fatal(err)
			}
			abuse(t, a)
		}
		tpm.Reset()
		if err := sign(within(t, callLimit), c, k); err != nil {
			t.Fatal(err)
		}
	}
	round(100) // warm: pools, heap and stacks have their size
	before := settled(t, a, daemon.Usage{})
	for range 5 {
		round(100)
	}
	after := settled(t, a, before)
	if after.Descriptors > before.Descriptors || after.Threads > before.Threads+4 || after.RSS > before.RSS+8<<20 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	t.Logf("before %+v, after 500 rounds %+v", before, after)
}

// settled waits until the connections of the past are gone, at most a second.
func settled(t *testing.T, a *daemon.Agent, want daemon.Usage) daemon.Usage {
	t.Helper()
	usage := a.Usage()
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if usage = a.Usage(); want.Descriptors > 0 && usage.Descriptors <= want.Descriptors {
			break
		}
	}
	return usage
}

// abuse makes a connection of each bad kind.
func abuse(t *testing.T, a *daemon.Agent) {
	t.Helper()
	for _, what := range []string{
		"",                                       // connects and goes
		"\x00",                                   // an empty message
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n\x00",  // another protocol
		`{"method":"io.holdfast.Agent.ListKeys"`, // half a message
		`{"method":"io.holdfast.Agent.SignTLSClient","parameters":{"key":"k","scheme":"x","message":"AA=="}}` + "\x00",
	} {
		conn, err := net.Dial("unix", a.Socket)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, what)
		conn.Close()
	}
	conn, err := a.DialAs(otherUID)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(fmt.Errorf("another uid read %d bytes: %v", n, err))
	}
	conn.Close()
}
