package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// Lanes are bounded: a lane without users makes room for another unit, and while all
// lanes are in use the other units use the shared queue.
func TestLanesAreBounded(t *testing.T) {
	s := NewLanes(Limits{})
	c := Caller{Peer: "uid:1"}
	for i := range 3 * maxLanes {
		if err := s.Do(t.Context(), fmt.Sprint("idle ", i), c, nothing); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.queues()); n != maxLanes+1 {
		t.Errorf("%d queues, want %d and the backend's own", n, maxLanes)
	}
	var all sync.WaitGroup
	var holding sync.WaitGroup
	release := make(chan struct{})
	for i := range maxLanes {
		holding.Add(1)
		all.Go(func() {
			s.Do(context.Background(), fmt.Sprint("busy ", i), c, func(context.Context) error { holding.Done(); <-release; return nil })
		})
	}
	holding.Wait()
	for i := range 5 {
		if err := s.Do(t.Context(), fmt.Sprint("more ", i), c, nothing); err != nil {
			t.Errorf("one more: %v", err)
		}
	}
	if n := len(s.queues()); n != maxLanes+1 || s.Waiting() != 0 {
		t.Errorf("%d queues and %d waiting, want %d and none", n, s.Waiting(), maxLanes+1)
	}
	close(release)
	all.Wait()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Do(t.Context(), "late", c, nothing); err == nil {
		t.Error("work after the end")
	}
}

// The lane of a unit that went is closed after its last use, and not when the unit came
// back meanwhile.
func TestLaneOfAUnitThatCameBack(t *testing.T) {
	s := NewLanes(Limits{})
	defer s.Close(t.Context())
	for _, back := range []bool{false, true} {
		began, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			done <- s.Do(context.Background(), "u", Caller{}, func(context.Context) error { close(began); <-release; return nil })
		}()
		<-began
		s.Changed("u", true)
		if back {
			s.Changed("u", false)
		}
		close(release)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if there := len(s.queues()) == 2; there != back {
			t.Errorf("came back %t: its queue is there %t", back, there)
		}
	}
}

// Close returns in time although work in a lane that was taken away does not end.
func TestLanesCloseInTime(t *testing.T) {
	s := NewLanes(Limits{})
	began, over := make(chan struct{}), make(chan struct{})
	gone, leave := context.WithCancel(t.Context())
	go s.Do(gone, "u", Caller{}, func(context.Context) error { close(began); <-over; return nil })
	<-began
	leave()
	for deadline := time.Now().Add(30 * time.Second); len(s.queues()) == 2; time.Sleep(time.Millisecond) {
		s.Changed("u", true)
		if time.Now().After(deadline) {
			t.Fatal("the queue stays although nobody uses it")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	go func() { <-ctx.Done() }()
	s.Close(ctx)
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("the end took %v", took)
	}
	close(over)
}
