package piv

import (
	"context"
	"errors"
	"sync"
	"time"

	"holdfast/internal/fault"
	"holdfast/piv/wire"
)

// A keeper has one child at a time: it starts one when there is something to ask,
// and another when that has ended.
type keeper struct {
	config Config
	heard  func(*wire.Reply, error) // told how each request went, also when its caller has left; may be nil
	turn   chan struct{}            // holds one token while a request is under way

	mu      sync.Mutex // guards what follows
	now     *child     // nil before the first
	failed  int        // children in a row that ended before they answered anything
	resting time.Time  // when the next one may be started
	touch   time.Time  // until when the card may wait for a touch that nobody wants any more; zero when it does not
	closed  bool
}

func newKeeper(c Config) *keeper { return &keeper{config: c, turn: make(chan struct{}, 1)} }

// A patience is how long a request may take, and what happens when nobody waits
// for it any more.
type patience struct {
	limit  time.Duration
	grace  time.Duration // to finish it all the same
	repeat bool          // once, when the child ended before it answered: nothing is spent by that
	touch  bool          // the card may wait for a finger: that cannot be called off, and others are told
}

// do sends r when the requests before it are answered, and waits for the reply
// until ctx ends. The request's secrets are copied here and wiped with the copy.
// Errors are keys.Errors; what the child itself reports is in the reply.
func (k *keeper) do(ctx context.Context, r wire.Request, p patience) (*wire.Reply, *child, error) {
	if err := k.takeTurn(ctx, r.Serial); err != nil {
		return nil, nil, err
	}
	c, err := k.running(ctx)
	if err != nil {
		<-k.turn
		return nil, nil, err
	}
	own(&r)
	var reply *wire.Reply
	done, hurry := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		reply, err = c.call(&r, p.limit, hurry)
		k.note(c, err)
		if k.heard != nil {
			k.heard(reply, err)
		}
		k.settle(done)
		<-k.turn
	}()
	select {
	case <-done:
	case <-ctx.Done():
		if p.touch {
			k.blink(done, time.Now().Add(p.grace))
		}
		hurry <- p.grace
		return nil, c, tooLate(ctx)
	}
	return reply, c, asKeys(err)
}

// own makes r's secrets copies: whoever passed them wipes theirs, perhaps before
// the request is sent.
func own(r *wire.Request) {
	for _, secret := range []*[]byte{&r.PIN, &r.PUK, &r.ManagementKey, &r.Old, &r.OldPUK, &r.New} {
		*secret = append([]byte(nil), *secret...)
	}
}

// running returns the child, a new one if need be. After children that were of
// no use it waits a little first.
func (k *keeper) running(ctx context.Context) (*child, error) {
	k.mu.Lock()
	rest := time.Until(k.resting)
	k.mu.Unlock()
	if rest > 0 {
		timer := time.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, tooLate(ctx)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, errClosed()
	}
	if k.now != nil && !k.now.dead() {
		return k.now, nil
	}
	c, err := startChild(k.config)
	if err != nil {
		k.rest()
		return nil, &fault.Error{Kind: fault.DeviceAbsent, Message: "the program for cards cannot be started", Hint: "install holdfast-piv, or set piv-program", Err: err}
	}
	k.now = c
	return c, nil
}

// rest puts off the next start, the longer the more children have failed. k.mu is
// held.
func (k *keeper) rest() {
	k.failed++
	if k.failed > 1 {
		k.resting = time.Now().Add(min(50*time.Millisecond<<min(k.failed, 10), k.config.limits.backoff))
	}
}

// note counts children that end on their own. One that was killed because a card
// hangs is not to blame.
func (k *keeper) note(c *child, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err == nil, errors.Is(err, errLate), errors.Is(err, errAbandoned):
		k.failed, k.resting = 0, time.Time{}
	case k.now == c:
		k.rest()
	}
}

// lock has the child forget the PIN that it keeps for slot, or for all when slot
// is empty, also while a request is under way. A child that does not say so at
// once is killed.
func (k *keeper) lock(slot string) {
	k.mu.Lock()
	c := k.now
	k.mu.Unlock()
	if c == nil || c.dead() {
		return
	}
	reply, err := c.call(&wire.Request{Op: wire.Lock, Slot: slot}, k.config.limits.lock, nil)
	if err == nil && reply.Error != nil {
		c.kill(errNonsense)
	}
	if c.dead() {
		<-c.ended
	}
}

// proves reports whether c is the child that runs now.
func (k *keeper) proves(c *child) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now == c && !c.dead()
}

// kill ends the child, now and for good, whatever it does. reaped returns when it
// is gone.
func (k *keeper) kill() (reaped func()) {
	c := k.shut()
	if c == nil {
		return func() {}
	}
	c.kill(errStopped)
	return func() { <-c.ended }
}

// close ends the child for good, and returns when it is reaped.
func (k *keeper) close() {
	if c := k.shut(); c != nil {
		c.stop(k.config.limits.lock)
	}
}

func (k *keeper) shut() *child {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	return k.now
}

func errClosed() error {
	return &fault.Error{Kind: fault.DeviceAbsent, Message: "the card is gone, or the backend is closed", Next: fault.Next{Do: fault.InsertCard}}
}

// tooLate is the error of a call whose context has ended.
func tooLate(ctx context.Context) error {
	return &fault.Error{Kind: fault.Deadline, Message: "the card did not answer in time", Err: context.Cause(ctx)}
}

// asKeys says what a child's end means to a caller.
func asKeys(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errLate):
		return &fault.Error{Kind: fault.Deadline, Message: "the card did not answer in time", Hint: hintHangs, Err: err}
	case errors.Is(err, errStopped):
		return &fault.Error{Kind: fault.DeviceAbsent, Message: "the card was removed, or the backend is closed", Next: fault.Next{Do: fault.InsertCard}, Err: err}
	}
	return &fault.Error{Kind: fault.DeviceFailed, Message: "the process that speaks to the card ended", Hint: "try again; the agent's log says more", Err: err}
}

const hintHangs = "take the card out and put it in again"
