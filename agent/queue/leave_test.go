package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/fault"
)

// wantLate fails unless err is a deadline error with this cause and words.
func wantLate(t *testing.T, err, cause error, words string) {
	t.Helper()
	if fault.KindOf(err) != fault.Deadline || !errors.Is(err, cause) || !strings.Contains(err.Error(), words) {
		t.Errorf("%v, want a deadline error from %q that says %q", err, cause, words)
	}
}

func TestLeaveBeforeTheTurn(t *testing.T) {
	q := open(t, Limits{})
	release := block(t, q)
	ctx, leave := context.WithCancel(context.Background())
	var ran atomic.Bool
	left := make(chan error, 1)
	go func() {
		left <- q.Do(ctx, Caller{Peer: "a"}, func(context.Context) error { ran.Store(true); return nil })
	}()
	waitFor(t, q, 1)
	leave()
	wantLate(t, <-left, context.Canceled, "busy until")
	if n := q.Waiting(); n != 0 {
		t.Errorf("%d requests wait after it left, want none", n)
	}
	release()
	if err := q.Do(t.Context(), Caller{Peer: "b"}, nothing); err != nil {
		t.Fatal(err)
	}
	if ran.Load() {
		t.Error("the work of a caller who had left ran")
	}
}

func TestLateBeforeItCame(t *testing.T) {
	q := open(t, Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := q.Do(ctx, Caller{}, func(context.Context) error { t.Error("the work ran"); return nil })
	wantLate(t, err, context.Canceled, "came after its deadline")
}

// TestDeadlineStorm: of a thousand requests whose deadline passes while the
// device is busy, none reaches it.
func TestDeadlineStorm(t *testing.T) {
	q := open(t, Limits{PerPeer: 1000, Total: 1000})
	release := block(t, q)
	ctx, cancel := context.WithCancel(context.Background())
	var ran atomic.Int32
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() {
			q.Do(ctx, Caller{Peer: fmt.Sprint(i % 7), Process: fmt.Sprint(i % 13)}, func(context.Context) error { ran.Add(1); return nil })
		})
	}
	waitFor(t, q, 1000)
	cancel()
	release()
	all.Wait()
	if err := q.Do(t.Context(), Caller{}, nothing); err != nil {
		t.Fatal(err)
	}
	if n := q.Waiting(); ran.Load() != 0 || n != 0 {
		t.Errorf("%d ran and %d wait, want none", ran.Load(), n)
	}
	if n := len(q.root.children); n != 0 {
		t.Errorf("%d peers are remembered, want none", n)
	}
}

// TestLeaveWhileItRuns: the caller goes at once, the device stays taken until
// the work returns, and the work was told.
func TestLeaveWhileItRuns(t *testing.T) {
	q := open(t, Limits{})
	ctx, leave := context.WithCancel(context.Background())
	running, told, gate := make(chan struct{}), make(chan struct{}), make(chan struct{})
	left := make(chan error, 1)
	go func() {
		left <- q.Do(ctx, Caller{Peer: "a"}, func(ctx context.Context) error {
			close(running)
			<-ctx.Done()
			close(told)
			<-gate
			return nil
		})
	}()
	<-running
	leave()
	wantLate(t, <-left, context.Canceled, "did not answer")
	<-told
	next := make(chan error, 1)
	go func() { next <- q.Do(context.Background(), Caller{Peer: "b"}, nothing) }()
	waitFor(t, q, 1)
	if !q.busyNow() {
		t.Error("the device counts as idle while the work holds it")
	}
	select {
	case err := <-next:
		t.Fatalf("the next work ran beside it: %v", err)
	default:
	}
	close(gate)
	if err := <-next; err != nil {
		t.Error(err)
	}
}

func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Limits{})
		alive := func(when string) {
			t.Helper()
			if err := q.Alive(); err != nil {
				t.Errorf("%s: %v, want alive", when, err)
			}
		}
		alive("at rest")
		time.Sleep(time.Hour)
		release := block(t, q)
		waiting := make(chan error, 1)
		go func() { waiting <- q.Do(context.Background(), Caller{}, nothing) }()
		time.Sleep(time.Hour)
		alive("with a device that does not answer")
		release()
		if err := <-waiting; err != nil {
			t.Error(err)
		}
		if err := q.Close(context.Background()); err != nil {
			t.Error(err)
		}
		alive("closed")
	})
}

// TestDeadLoopIsReported ends the loop's goroutine from inside.
func TestDeadLoopIsReported(t *testing.T) {
	q := New(Limits{})
	err := q.Do(t.Context(), Caller{}, func(context.Context) error { runtime.Goexit(); return nil })
	if fault.KindOf(err) != fault.Internal {
		t.Errorf("Do: %v, want an internal error", err)
	}
	<-q.idle
	if err := q.Alive(); err == nil {
		t.Error("a queue without a loop is alive")
	}
	waiting := make(chan error, 1)
	go func() { waiting <- q.Do(context.Background(), Caller{}, nothing) }()
	waitFor(t, q, 1)
	if err := q.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-waiting; fault.KindOf(err) != fault.Busy {
		t.Errorf("the request that waited: %v, want busy", err)
	}
}

func TestStalledLoopIsReported(t *testing.T) {
	q := open(t, Limits{})
	q.mu.Lock()
	q.root.waiting, q.since = 1, time.Now().Add(-time.Minute) // waiting, and not picked up
	q.mu.Unlock()
	if err := q.Alive(); err == nil || !strings.Contains(err.Error(), "1 requests wait") {
		t.Errorf("Alive: %v, want what waits", err)
	}
	q.mu.Lock()
	q.root.waiting = 0
	q.mu.Unlock()
}

func TestCloseFinishesWhatWaits(t *testing.T) {
	q := New(Limits{})
	release := block(t, q)
	done := make(chan error, 3)
	for range 3 {
		go func() { done <- q.Do(context.Background(), Caller{Peer: "a"}, nothing) }()
	}
	waitFor(t, q, 3)
	closed := make(chan error, 1)
	go func() { closed <- q.Close(context.Background()) }()
	for !isStopping(q) {
		runtime.Gosched()
	}
	if err := q.Do(t.Context(), Caller{Peer: "a"}, nothing); fault.KindOf(err) != fault.Busy {
		t.Errorf("Do while closing: %v, want busy", err)
	}
	release()
	for range 3 {
		if err := <-done; err != nil {
			t.Errorf("work that waited: %v", err)
		}
	}
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := q.Close(t.Context()); err != nil {
		t.Errorf("Close again: %v", err)
	}
	if err := q.Do(t.Context(), Caller{Peer: "a"}, nothing); fault.KindOf(err) != fault.Busy {
		t.Errorf("Do after Close: %v, want busy", err)
	}
}

func isStopping(q *Queue) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stopping
}

func TestCloseGivesUp(t *testing.T) {
	for _, obedient := range []bool{true, false} {
		t.Run(fmt.Sprint("obedient ", obedient), func(t *testing.T) {
			q := New(Limits{})
			running, gate := make(chan struct{}), make(chan struct{})
			first, second := make(chan error, 1), make(chan error, 1)
			go func() {
				first <- q.Do(context.Background(), Caller{Peer: "a"}, func(ctx context.Context) error {
					close(running)
					<-ctx.Done()
					if !obedient {
						<-gate
					}
					return ctx.Err()
				})
			}()
			<-running
			go func() { second <- q.Do(context.Background(), Caller{Peer: "b"}, nothing) }()
			waitFor(t, q, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			err := q.Close(ctx)
			if obedient && err != nil || !obedient && (err == nil || !strings.Contains(err.Error(), "has not returned")) {
				t.Errorf("Close: %v", err)
			}
			if err := <-second; fault.KindOf(err) != fault.Busy {
				t.Errorf("the request that waited: %v, want busy", err)
			}
			close(gate)
			if err := <-first; !errors.Is(err, context.Canceled) {
				t.Errorf("the request that ran: %v, want canceled", err)
			}
		})
	}
}
