package broker

import (
	"context"
	"sync"
	"time"

	"holdfast/client/broker/ticket"
	"holdfast/client/broker/upstream"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
)

// readyFor is how long the broker takes a key for ready without asking again: the
// plugin's runs come in bursts, and a kubectl command waits for each. A change that
// the agent announces ends it; the agent decides on each signature anyway.
const readyFor = time.Second

// readyKeys remembers which sets of keys could sign a moment ago. Keys with a PIN
// are not among them.
type readyKeys struct {
	mu      sync.Mutex
	until   map[string]time.Time // by set
	changes int                  // how often it was cleared
}

// has reports whether the set could sign a moment ago.
func (r *readyKeys) has(set string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.until[set])
}

// version is called before the agent is asked, and put with it when the agent has
// answered: a change in between makes the answer stale. While the agent is not
// watched, no change would be noticed and nothing is remembered.
func (r *readyKeys) version() (changes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes
}

func (r *readyKeys) put(set string, version int, watched bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !watched || version != r.changes {
		return
	}
	if r.until == nil {
		r.until = map[string]time.Time{}
	}
	r.until[set] = time.Now().Add(readyFor)
}

// clear is called when something changes at the agent.
func (r *readyKeys) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	clear(r.until)
}

// ready makes sure that the proxy listens, where the caller is to use it, and that
// the profile's key can sign now: the user learns of an obstacle here, and not from a
// failed connection. For a locked key, the user is asked for the PIN; a
// program that has a ticket already gets another one if the user cannot be asked.
func (r *request) ready(ctx context.Context, prof *profile.Profile) error {
	b := r.broker
	locked := ""
	err := withAgent(ctx, b.Agent, func(ctx context.Context) error {
		if r.parameters.Mode == brokerwire.ModeProxy {
			if err := b.proxy.open(ctx, prof); err != nil {
				return err
			}
		}
		if b.watch.ready.has(prof.Key) {
			return nil
		}
		version := b.watch.ready.version()
		info, err := canSign(ctx, b.Agent, prof.Key)
		switch {
		case fault.KindOf(err) == fault.PINRequired:
			locked = info.Name
		case err == nil && !info.PIN:
			b.watch.ready.put(prof.Key, version, b.watch.fault() == nil)
		}
		return err
	})
	if locked == "" || fault.KindOf(err) != fault.PINRequired {
		return err
	}
	return r.unlock(ctx, locked)
}

// unlock has the agent ask the user of the process that ran the plugin for a key's
// PIN. The caller is told first: a prompt may take over the terminal, and whatever
// is written there afterwards spoils it.
func (r *request) unlock(ctx context.Context, key string) error {
	holder, err := ticket.Parent(r.caller)
	if err != nil {
		return err
	}
	r.say(ctx, "the PIN of key "+key)
	_, err = r.broker.Agent.Unlock(ctx, agentwire.UnlockKeyParameters{Name: key, OnBehalfOf: &agentwire.Reported{
		UID: holder.UID, PID: holder.PID, Start: holder.Start, Unit: r.caller.Unit,
	}})
	if fault.KindOf(err) == fault.PINRequired && r.parameters.Mode == brokerwire.ModeProxy && r.broker.issued.tickets.Holds(holder, r.parameters.Profile) {
		return nil // the proxy tells a program that runs on what it waits for
	}
	return upstream.Locked(err, key)
}
