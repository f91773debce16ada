// Package queue shares the time of a device between its callers. A device does one
// thing at a time; its queue runs the work of many callers on one goroutine,
// round robin between peers and, within a peer, between its processes, so that
// a peer with hundreds of waiting requests delays a peer with one request by
// one turn only.
//
// Start at [Lanes.Do], for a backend with several devices, or at [Queue.Do], for one.
// The number of waiting requests is bounded ([Limits]); a request beyond that is
// rejected at once with the time after which a retry makes sense. Work whose caller has
// left never starts.
//
// The queue cannot take work away from a device that does not answer. Work gets a
// context that ends when its caller leaves, and has to return by itself; until it
// returns, nothing else runs on this device.
package queue

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"holdfast/internal/fault"
)

// Limits bound how many requests wait. Running work does not count.
//
// Total is for peers that have requests waiting already. A peer that has none is
// accepted up to twice Total, so that a few peers at their limit shut out no other
// peer. Beyond twice Total every request is rejected.
type Limits struct {
	PerPeer int // for one peer; 0 means 256
	Total   int // for all peers together; 0 means 1024
}

// Caller identifies the caller of a request. Turns are shared between peers first, then
// between the processes of a peer.
type Caller struct {
	Peer    string // uid:1000, or unit:x.service where the unit is known
	Process string // pid and start time, or another text that differs between the processes of a peer
}

// Queue owns one device's time. Its methods are safe for concurrent use.
type Queue struct {
	limits Limits
	wake   chan struct{} // holds one token when work may be waiting
	idle   chan struct{} // closed when the loop has ended

	mu       sync.Mutex // guards what follows; never held while work runs
	root     *turn
	running  *item
	stopping bool
	since    time.Time // when running started, or when the queue last became idle or busy
	service  time.Duration
}

// item is one piece of work from Do until it ends.
type item struct {
	ctx    context.Context
	work   func(context.Context) error
	caller Caller
	turn   *turn           // the process that it waits in
	place  *list.Element   // its place there; nil once it left
	run    context.Context // ctx, or earlier when the queue closes; set when its turn comes
	cancel context.CancelFunc
	done   chan error // buffered: takes the one result although the caller left
}

// New starts the goroutine of an empty queue. [Queue.Close] ends it.
func New(l Limits) *Queue {
	if l.PerPeer == 0 {
		l.PerPeer = 256
	}
	if l.Total == 0 {
		l.Total = 1024
	}
	q := &Queue{
		limits: l,
		wake:   make(chan struct{}, 1),
		idle:   make(chan struct{}),
		root:   newTurn(nil, ""),
		since:  time.Now(),
	}
	go q.loop()
	return q
}

// Do waits for c's turn, runs work on the queue's goroutine and returns what
// work returned. A panic in work becomes an internal [fault.Error].
//
// When ctx ends, Do returns a deadline [fault.Error] at once. Work that had not
// started will then never run. Work that had started sees its context end and
// holds the device until it returns: after an error, the caller must not touch
// what work may still be writing.
//
// Do returns a busy [fault.Error] when too many requests wait, or when the queue
// is closing.
func (q *Queue) Do(ctx context.Context, c Caller, work func(context.Context) error) error {
	it := &item{ctx: ctx, work: work, caller: c, done: make(chan error, 1)}
	if err := q.enqueue(it); err != nil {
		return err
	}
	select {
	case err := <-it.done:
		return err
	case <-ctx.Done():
		return q.leave(it)
	}
}

func (q *Queue) enqueue(it *item) error {
	if err := it.ctx.Err(); err != nil {
		return late("the request came after its deadline", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.reject(it.caller.Peer); err != nil {
		return err
	}
	if q.running == nil && q.root.waiting == 0 {
		q.since = time.Now()
	}
	it.turn = q.root.child(it.caller.Peer).child(it.caller.Process)
	it.place = it.turn.add(it)
	q.signal()
	return nil
}

// leave returns Do's error when its context ended. The loop and the caller may both reach
// for the item now: the first of them to take mu decides whether it runs.
func (q *Queue) leave(it *item) error {
	q.mu.Lock()
	waited := it.place != nil
	if waited {
		q.drop(it)
	}
	q.mu.Unlock()
	if waited {
		return late("the device was busy until the request's deadline", it.ctx.Err())
	}
	select {
	case err := <-it.done: // it ended at the same moment
		return err
	default:
		return late("the device did not answer before the request's deadline", it.ctx.Err())
	}
}

// drop takes a waiting item out. The caller holds mu.
func (q *Queue) drop(it *item) {
	it.turn.remove(it.place)
	it.place = nil
}

func late(fact string, cause error) error {
	return &fault.Error{Kind: fault.Deadline, Message: fact, Err: cause}
}

// reject returns an error when no more requests of peer may wait. The caller holds mu.
func (q *Queue) reject(peer string) error {
	mine := 0
	if p := q.root.children[peer]; p != nil {
		mine = p.waiting
	}
	switch total := q.root.waiting; {
	case q.stopping:
		return &fault.Error{Kind: fault.Busy, Message: "the agent is stopping", RetryAfter: time.Second}
	case mine >= q.limits.PerPeer:
		return q.busy(fmt.Sprintf("too many of your requests wait for the device (%d)", mine), mine*len(q.root.children))
	case mine > 0 && total >= q.limits.Total, total >= 2*q.limits.Total:
		return q.busy(fmt.Sprintf("too many requests wait for the device (%d)", total), total)
	}
	return nil
}

// busy returns the error for a request that is rejected. Its RetryAfter is the time that
// ahead pieces of work take, or all that wait if they are fewer.
func (q *Queue) busy(fact string, ahead int) error {
	wait := q.service * time.Duration(min(ahead, q.root.waiting))
	return &fault.Error{
		Kind:       fault.Busy,
		Message:    fact,
		Hint:       "try again later, or send fewer requests at once",
		RetryAfter: min(max(wait, minRetry), maxRetry),
	}
}

// The bounds of RetryAfter for a rejected request.
const (
	minRetry = 10 * time.Millisecond
	maxRetry = 30 * time.Second
)

// signal wakes the loop. The caller need not hold mu. One token is enough for any number
// of waiting requests.
func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
