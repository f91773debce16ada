package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"holdfast/internal/fault"
)

// loop is the one goroutine that runs work. It ends when the queue is closing
// and nothing waits.
func (q *Queue) loop() {
	defer close(q.idle)
	for {
		it, stop := q.next()
		switch {
		case it != nil:
			q.serve(it)
		case stop:
			return
		default:
			<-q.wake
		}
	}
}

// next takes the item whose turn it is and makes it the running one. It drops items
// whose context ended and whose callers have not yet noticed.
func (q *Queue) next() (it *item, stop bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for it = q.root.take(); it != nil; it = q.root.take() {
		err := it.ctx.Err()
		if err == nil {
			break
		}
		it.turn.end()
		it.done <- late("the device was busy until the request's deadline", err)
	}
	if it == nil {
		return nil, q.stopping
	}
	it.run, it.cancel = context.WithCancel(it.ctx)
	q.running, q.since = it, time.Now()
	return it, false
}

// serve runs one item. Its result is delivered even when work
// panics or ends its goroutine; in the second case the loop is gone, which
// [Queue.Alive] reports.
func (q *Queue) serve(it *item) {
	err := defect(errors.New("work ended its goroutine"))
	defer func() {
		if r := recover(); r != nil {
			err = defect(fmt.Errorf("panic: %v\n%s", r, debug.Stack()))
		}
		it.cancel()
		q.finish(it)
		it.done <- err
	}()
	err = it.work(it.run)
}

func (q *Queue) finish(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.service = smooth(q.service, now.Sub(q.since))
	q.running, q.since = nil, now
	it.turn.end()
}

// smooth is an exponentially weighted moving average that forgets half of the
// past in about five pieces of work.
func smooth(average, sample time.Duration) time.Duration {
	if average == 0 {
		return sample
	}
	return average + (sample-average)/8
}

// defect returns the error of work that panicked. Its cause goes to the agent's log only.
func defect(cause error) error {
	return &fault.Error{Kind: fault.Internal, Message: "a defect in the agent stopped this request", Err: cause}
}
