package piv

import (
	"context"
	"errors"
	"sync"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
)

// A worker is the child for one card, and the known state of that card.
type worker struct {
	*keeper
	reader string

	health   sync.Mutex        // guards the fields below; held only briefly
	all      uint64            // calls of Lock for all keys
	locks    map[string]uint64 // and for one key
	unlocked map[string]proof
	tries    *int // of the PIN, when known
	state    keys.State
	fault    *fault.Error // with a state other than ready
	since    time.Time
}

// A proof records that a key is unlocked: until when, and in which child, since only
// that child has the PIN.
type proof struct {
	until time.Time
	by    *child
}

func newWorker(c Config, reader string) *worker {
	w := &worker{keeper: newKeeper(c), reader: reader, locks: map[string]uint64{}, unlocked: map[string]proof{}, state: keys.StateReady, since: time.Now()}
	w.onOutcome = w.observe
	return w
}

// ask sends r for the card with the serial number. Errors, also the child's own ones,
// are of type [fault.Error].
func (w *worker) ask(ctx context.Context, serial uint32, r wire.Request, p callOptions) (*wire.Reply, *child, error) {
	r.Reader, r.Serial, r.Wait = w.reader, serial, waitWithin(min(p.limit, w.config.limits.operation))
	if !p.touch { // then it is longer
		p.grace += r.Wait
	}
	reply, c, err := w.do(ctx, r, p)
	if died(err) && p.repeat && ctx.Err() == nil {
		reply, c, err = w.do(ctx, r, p)
	}
	if err == nil && reply.Error != nil {
		return nil, c, reply.Error.Keys()
	}
	return reply, c, err
}

// waitWithin is how long a request with a limit waits for another program's transaction.
// The rest of the limit is for the card.
func waitWithin(limit time.Duration) time.Duration { return limit * 3 / 5 }

// died reports whether a child ended by itself, or was killed for a malformed message.
func died(err error) bool { return errors.Is(err, errEnded) || errors.Is(err, errMalformed) }

// observe updates the card's state from a request's outcome.
func (w *worker) observe(reply *wire.Reply, err error) {
	switch {
	case errors.Is(err, errAbandoned): // says nothing about the card
	case err == nil && reply.Error != nil && reply.Error.Shut: // the key is busy, not the card
		w.learn(nil, nil)
	case err == nil && reply.Error != nil:
		w.learn(reply.Error.Tries, reply.Error.Keys())
	case err == nil:
		if reply.Recounted {
			w.recount(reply.Tries)
		}
		w.learn(reply.Tries, nil)
	default:
		w.learn(nil, asKeys(err))
	}
}

// learn stores the card's state.
func (w *worker) learn(tries *int, err error) {
	w.health.Lock()
	defer w.health.Unlock()
	if tries != nil {
		w.tries = tries
	}
	state := keys.StateReady
	e, _ := fault.AsError(err)
	if e != nil {
		state = stateOf(e)
	}
	if state == "" { // the card works, and rejected the request
		state, e = keys.StateReady, nil
	}
	if state != w.state {
		w.since = time.Now()
	}
	w.state, w.fault = state, e
}

// recount replaces the number of tries left, which may be unknown.
func (w *worker) recount(tries *int) {
	w.health.Lock()
	defer w.health.Unlock()
	w.tries = tries
}

// usable reports whether the key is unlocked now, by the wall clock: the monotonic
// clock stops while the machine sleeps.
func (w *worker) usable(key string) bool {
	w.health.Lock()
	defer w.health.Unlock()
	p, ok := w.unlocked[key]
	if !ok {
		return false
	}
	if !time.Now().Round(0).Before(p.until) || !w.proves(p.by) {
		delete(w.unlocked, key)
		return false
	}
	return true
}

// epoch counts how often the key was locked.
func (w *worker) epoch(key string) uint64 {
	w.health.Lock()
	defer w.health.Unlock()
	return w.all + w.locks[key]
}

// keep records that the child c has proved the key's PIN, unless the key was locked
// since epoch.
func (w *worker) keep(key string, until time.Time, c *child, epoch uint64) bool {
	w.health.Lock()
	defer w.health.Unlock()
	if w.all+w.locks[key] != epoch {
		return false
	}
	w.unlocked[key] = proof{until.Round(0), c}
	return true
}

// forget locks one key, or all when key is empty, in this process.
func (w *worker) forget(key string) {
	w.health.Lock()
	defer w.health.Unlock()
	if key == "" {
		w.all++
		clear(w.unlocked)
		return
	}
	w.locks[key]++
	delete(w.unlocked, key)
}
