package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"holdfast/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a queue that the test closes, and fails when it cannot.
func open(t *testing.T, l Limits) *Queue {
	t.Helper()
	q := New(l)
	t.Cleanup(func() {
		if err := q.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return q
}

// block puts work on the device that lasts until the returned function is called.
func block(t *testing.T, q *Queue) (release func()) {
	t.Helper()
	started, gate, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- q.Do(context.Background(), Caller{Peer: "blocker"}, func(context.Context) error {
			close(started)
			<-gate
			return nil
		})
	}()
	<-started
	return func() {
		close(gate)
		if err := <-done; err != nil {
			t.Errorf("the blocking work: %v", err)
		}
	}
}

// waitFor polls until n requests wait.
func waitFor(t *testing.T, q *Queue, n int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); q.Waiting() != n; time.Sleep(50 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests wait, want %d", q.Waiting(), n)
		}
	}
}

// busyNow reports whether work runs.
func (q *Queue) busyNow() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running != nil
}

// nothing is work that succeeds at once.
func nothing(context.Context) error { return nil }

func TestDoReturnsWhatWorkReturned(t *testing.T) {
	q := open(t, Limits{})
	if err := q.Do(t.Context(), Caller{Peer: "uid:1"}, nothing); err != nil {
		t.Errorf("Do: %v, want nil", err)
	}
	own := errors.New("own")
	if err := q.Do(t.Context(), Caller{Peer: "uid:1"}, func(context.Context) error { return own }); err != own {
		t.Errorf("Do: %v, want %v", err, own)
	}
	if n := q.Waiting(); n != 0 || q.busyNow() {
		t.Errorf("%d requests wait, and work runs is %t, want neither", n, q.busyNow())
	}
}

func TestOneAtATime(t *testing.T) {
	q := open(t, Limits{})
	inside := make(chan struct{}, 1)
	errs := make(chan error)
	for range 50 {
		go func() {
			errs <- q.Do(context.Background(), Caller{Peer: "uid:1"}, func(context.Context) error {
				select {
				case inside <- struct{}{}:
				default:
					return errors.New("two at once")
				}
				<-inside
				return nil
			})
		}()
	}
	for range 50 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestContextOfWorkEndsWithIt(t *testing.T) {
	q := open(t, Limits{})
	var kept context.Context
	if err := q.Do(t.Context(), Caller{}, func(ctx context.Context) error { kept = ctx; return ctx.Err() }); err != nil {
		t.Fatal(err)
	}
	if kept.Err() == nil {
		t.Error("the context of work that is over has not ended: it stays with its parent")
	}
}

func TestPanicBecomesInternal(t *testing.T) {
	q := open(t, Limits{})
	err := q.Do(t.Context(), Caller{}, func(context.Context) error { panic("broken") })
	if got, want := fault.KindOf(err), fault.Internal; got != want {
		t.Errorf("kind %q, want %q (%v)", got, want, err)
	}
	if e, ok := fault.AsError(err); !ok || e.Message != "a defect in the agent stopped this request" {
		t.Errorf("error %#v, want the internal error that callers see", err)
	}
	if err := q.Do(t.Context(), Caller{}, nothing); err != nil {
		t.Errorf("Do after a panic: %v", err)
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits Limits
		peers  []string // one waiting request each
		next   string
		want   fault.Kind
	}{
		{"below both", Limits{2, 4}, []string{"a", "b", "c"}, "a", ""},
		{"at the peer's", Limits{2, 4}, []string{"a", "a"}, "a", fault.Busy},
		{"another peer's", Limits{2, 4}, []string{"a", "a"}, "b", ""},
		{"at the total", Limits{3, 4}, []string{"a", "a", "b", "b"}, "a", fault.Busy},
		{"at the total, with nothing waiting", Limits{3, 4}, []string{"a", "a", "b", "b"}, "c", ""},
		{"below twice the total", Limits{2, 2}, []string{"a", "b", "c"}, "d", ""},
		{"at twice the total", Limits{2, 2}, []string{"a", "b", "c", "d"}, "e", fault.Busy},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := open(t, c.limits)
			release := block(t, q)
			done := make(chan error, len(c.peers)+1)
			for i, p := range c.peers {
				go func() { done <- q.Do(context.Background(), Caller{Peer: p}, nothing) }()
				waitFor(t, q, i+1)
			}
			refused := make(chan error, 1)
			go func() { refused <- q.Do(context.Background(), Caller{Peer: c.next}, nothing) }()
			if c.want == "" {
				waitFor(t, q, len(c.peers)+1)
				release()
			} else {
				defer release()
			}
			if err := <-refused; fault.KindOf(err) != c.want {
				t.Errorf("kind %q (%v), want %q", fault.KindOf(err), err, c.want)
			}
		})
	}
}

func TestDefaultLimits(t *testing.T) {
	if got, want := open(t, Limits{}).limits, (Limits{PerPeer: 256, Total: 1024}); got != want {
		t.Errorf("limits %+v, want %+v", got, want)
	}
}

func TestBusySaysWhenToRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, Limits{PerPeer: 4, Total: 8})
		for range 30 {
			q.Do(t.Context(), Caller{Peer: "a"}, func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil })
		}
		release := block(t, q)
		for range 4 {
			go q.Do(context.Background(), Caller{Peer: "a"}, nothing)
		}
		synctest.Wait()
		err := q.Do(t.Context(), Caller{Peer: "a"}, nothing)
		e, ok := fault.AsError(err)
		if !ok || e.Kind != fault.Busy || e.RetryAfter != 400*time.Millisecond {
			t.Errorf("%#v, want busy with 4 times the service time of 100ms", err)
		}
		release()
	})
}

func TestRetryIsBounded(t *testing.T) {
	q := open(t, Limits{PerPeer: 1})
	for _, c := range []struct {
		service, want time.Duration
	}{{0, minRetry}, {time.Hour, maxRetry}} {
		q.service = c.service
		q.root.waiting = 3
		e, _ := fault.AsError(q.busy("", 3))
		q.root.waiting = 0
		if e.RetryAfter != c.want {
			t.Errorf("service time %v: retry after %v, want %v", c.service, e.RetryAfter, c.want)
		}
	}
}
