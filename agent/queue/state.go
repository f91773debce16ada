package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/internal/fault"
)

// Waiting returns how many requests wait for their turn.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.root.waiting
}

// stalled is how long work may wait while nothing runs before the loop counts as dead.
// The loop takes microseconds to pick up work.
const stalled = 2 * time.Second

// Alive returns an error when the loop no longer picks up work, and nil when the loop is
// idle, busy, closed, or held up by a device that does not answer: a watchdog that
// restarts the agent would not repair the device.
func (q *Queue) Alive() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.idle:
		if !q.stopping {
			return errors.New("the queue's loop has ended")
		}
	default:
	}
	if since := time.Since(q.since); q.running == nil && q.root.waiting > 0 && since > stalled {
		return fmt.Errorf("%d requests wait and none was picked up for %v", q.root.waiting, since.Round(time.Millisecond))
	}
	return nil
}

// grace is how long Close waits for cancelled work to notice.
const grace = 250 * time.Millisecond

// Close rejects new requests, lets waiting requests run until ctx ends, then drops the
// rest and cancels the running one. It returns nil when the loop has ended, and
// otherwise an error that says since when work has been running: that work still holds
// the device.
func (q *Queue) Close(ctx context.Context) error {
	q.mu.Lock()
	q.stopping = true
	q.mu.Unlock()
	q.signal()
	select {
	case <-q.idle:
	case <-ctx.Done():
	}
	since := q.abandon()
	select {
	case <-q.idle:
		return nil
	case <-time.After(grace):
		return fmt.Errorf("work that has run since %s was cancelled and has not returned", since.Format(time.RFC3339))
	}
}

// abandon drops waiting work, also what a loop that died left behind, cancels running
// work and returns when it started.
func (q *Queue) abandon() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, it := range q.root.items() {
		q.drop(it)
		it.done <- &fault.Error{Kind: fault.Busy, Message: "the agent is stopping", RetryAfter: time.Second}
	}
	if q.running != nil {
		q.running.cancel()
	}
	return q.since
}
