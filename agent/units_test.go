package agent

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"holdfast/agent/queue"
)

func nothing(context.Context) error { return nil }

// Queues of units are bounded: those that nobody uses make room, and when all are
// in use the rest share one.
func TestUnitsAreBounded(t *testing.T) {
	q := newQueues(queue.Limits{})
	c := queue.Caller{Peer: "uid:1"}
	for i := range 3 * maxUnits {
		if err := q.do(t.Context(), fmt.Sprint("idle ", i), c, nothing); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(q.all()); n != maxUnits+1 {
		t.Errorf("%d queues, want %d and the backend's own", n, maxUnits)
	}
	var all sync.WaitGroup
	var holding sync.WaitGroup
	release := make(chan struct{})
	for i := range maxUnits {
		holding.Add(1)
		all.Go(func() {
			q.do(context.Background(), fmt.Sprint("busy ", i), c, func(context.Context) error { holding.Done(); <-release; return nil })
		})
	}
	holding.Wait()
	for i := range 5 {
		if err := q.do(t.Context(), fmt.Sprint("more ", i), c, nothing); err != nil {
			t.Errorf("one more: %v", err)
		}
	}
	if n := len(q.all()); n != maxUnits+1 || q.waiting() != 0 {
		t.Errorf("%d queues and %d waiting, want %d and none", n, q.waiting(), maxUnits+1)
	}
	close(release)
	all.Wait()
	if err := q.close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := q.do(t.Context(), "late", c, nothing); err == nil {
		t.Error("work after the end")
	}
}

// A queue whose unit went is closed when the last who uses it is done, and not when
// the unit came back meanwhile.
func TestQueueOfAUnitThatCameBack(t *testing.T) {
	q := newQueues(queue.Limits{})
	defer q.close(t.Context())
	for _, back := range []bool{false, true} {
		began, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			done <- q.do(context.Background(), "u", queue.Caller{}, func(context.Context) error { close(began); <-release; return nil })
		}()
		<-began
		q.changed("u", true)
		if back {
			q.changed("u", false)
		}
		close(release)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if there := len(q.all()) == 2; there != back {
			t.Errorf("came back %t: its queue is there %t", back, there)
		}
	}
}

// Work that does not end holds up the end no longer than it may.
func TestQueuesEndInTime(t *testing.T) {
	q := newQueues(queue.Limits{})
	began, over := make(chan struct{}), make(chan struct{})
	gone, leave := context.WithCancel(t.Context())
	go q.do(gone, "u", queue.Caller{}, func(context.Context) error { close(began); <-over; return nil })
	<-began
	leave()
	for deadline := time.Now().Add(5 * time.Second); len(q.all()) == 2; time.Sleep(time.Millisecond) {
		q.changed("u", true)
		if time.Now().After(deadline) {
			t.Fatal("the queue stays although nobody uses it")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	go func() { <-ctx.Done() }()
	q.close(ctx)
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("the end took %v", took)
	}
	close(over)
}
