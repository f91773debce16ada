package piv

import (
	"context"
	"errors"
	"sync"
	"time"

	"holdfast/internal/fault"
	"holdfast/piv/wire"
)

// A keeper runs at most one child at a time. It starts the child for the first
// request, and another one after the child has ended.
type keeper struct {
	config    Config
	onOutcome func(*wire.Reply, error) // called with each request's outcome, also when its caller has left; may be nil
	turn      chan struct{}            // holds one token while a request is in flight

	mu        sync.Mutex // guards the fields below
	now       *child     // nil before the first
	failed    int        // children in a row that ended before they answered a request
	hung      bool       // a child was killed during its last request, and no other has reached the card since
	notBefore time.Time  // when the next child may be started
	touch     time.Time  // until when the card may wait for the touch of an abandoned request; zero when it does not
	closed    bool
}

func newKeeper(c Config) *keeper { return &keeper{config: c, turn: make(chan struct{}, 1)} }

// callOptions are the timeouts of a request, and whether it may be repeated.
type callOptions struct {
	limit  time.Duration
	grace  time.Duration // to finish after the caller has left
	repeat bool          // once, when the child ended before it answered; for requests that spend nothing
	touch  bool          // the card may wait for a touch, which cannot be cancelled: other callers get a busy error
}

// do sends r when the requests before it are answered, and waits for the reply until
// ctx ends. It copies the request's secrets and wipes the copies. Errors are of type
// [fault.Error]; the child's own errors are in the reply.
func (k *keeper) do(ctx context.Context, r wire.Request, p callOptions) (*wire.Reply, *child, error) {
	if err := k.takeTurn(ctx, r.Serial); err != nil {
		return nil, nil, err
	}
	c, err := k.running(ctx)
	if err != nil {
		<-k.turn
		return nil, nil, err
	}
	copySecrets(&r)
	var reply *wire.Reply
	done, shorten := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		reply, err = c.call(&r, p.limit, shorten)
		reply = k.note(c, reply, err)
		if k.onOutcome != nil {
			k.onOutcome(reply, err)
		}
		k.settle(done)
		<-k.turn
	}()
	select {
	case <-done:
	case <-ctx.Done():
		if p.touch {
			k.noteTouch(done, time.Now().Add(p.grace))
		}
		shorten <- p.grace
		return nil, c, tooLate(ctx)
	}
	return reply, c, asKeys(err)
}

// copySecrets replaces r's secrets with copies: the caller may wipe its own before the
// request is sent.
func copySecrets(r *wire.Request) {
	for _, secret := range []*[]byte{&r.PIN, &r.PUK, &r.ManagementKey, &r.Old, &r.OldPUK, &r.New} {
		*secret = append([]byte(nil), *secret...)
	}
}

// running returns the child and starts one if needed. It waits for the backoff after
// children that failed.
func (k *keeper) running(ctx context.Context) (*child, error) {
	k.mu.Lock()
	wait := time.Until(k.notBefore)
	k.mu.Unlock()
	if wait > 0 {
		timer := time.NewTimer(wait)
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
		k.backOff()
		return nil, &fault.Error{Kind: fault.DeviceAbsent, Message: "the program for cards cannot be started", Hint: "install holdfast-piv, or set piv-program", Err: err}
	}
	k.now = c
	return c, nil
}

// backOff delays the next start; the delay grows with the number of failed children.
// k.mu is held.
func (k *keeper) backOff() {
	k.failed++
	if k.failed > 1 {
		k.notBefore = time.Now().Add(min(50*time.Millisecond<<min(k.failed, 10), k.config.limits.backoff))
	}
}

// note counts the children that end on their own, and returns the reply. A child that
// was killed because a card hangs does not count. To the next child, that one is another
// program in the middle of its work, and note corrects this.
func (k *keeper) note(c *child, reply *wire.Reply, err error) *wire.Reply {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err == nil, errors.Is(err, errLate), errors.Is(err, errAbandoned):
		k.failed, k.notBefore = 0, time.Time{}
		busy := err == nil && reply.Error != nil && reply.Error.Kind == fault.Busy && !reply.Error.Shut
		k.hung = err != nil || k.hung && busy
		if k.hung && busy {
			e := *reply.Error
			e.Kind, e.Message, e.Hint, e.Next, e.RetryAfterMS = fault.DeviceWedged, "the card does not answer", hintHangs, fault.Next{}, 0
			return &wire.Reply{ID: reply.ID, Error: &e}
		}
	case k.now == c:
		k.backOff()
	}
	return reply
}

// lock makes the child forget the PIN that it keeps for slot, or for all slots when
// slot is empty, also while a request is in flight. It kills a child that does not
// confirm in time.
func (k *keeper) lock(slot string) {
	k.mu.Lock()
	c := k.now
	k.mu.Unlock()
	if c == nil || c.dead() {
		return
	}
	reply, err := c.call(&wire.Request{Op: wire.Lock, Slot: slot}, k.config.limits.lock, nil)
	if err == nil && reply.Error != nil {
		c.kill(errMalformed)
	}
	if c.dead() {
		<-c.ended
	}
}

// proves reports whether c is the running child.
func (k *keeper) proves(c *child) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now == c && !c.dead()
}

// kill ends the child at once; no other is started. reaped returns when it has
// ended.
func (k *keeper) kill() (reaped func()) {
	c := k.shut()
	if c == nil {
		return func() {}
	}
	c.kill(errStopped)
	return func() { <-c.ended }
}

// close ends the child and returns when it is reaped; no other is started.
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
	return &fault.Error{Kind: fault.DeviceAbsent, Message: "the card was removed, or the backend is closed", Next: fault.Next{Do: fault.InsertCard}}
}

// tooLate is the error of a call whose context has ended.
func tooLate(ctx context.Context) error {
	return &fault.Error{Kind: fault.Deadline, Message: "the card did not answer in time", Err: context.Cause(ctx)}
}

// asKeys translates a child's end into the error of its caller.
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
