package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"holdfast/client"
	"holdfast/client/broker/ticket"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
)

// recent is how long the broker takes a key for ready without asking again: the
// plugin's runs come in bursts, and a kubectl command waits for each. What the
// agent announces in that time ends it; whether the key may sign, the agent
// decides with each signature anyway.
const recent = time.Second

// readiness remembers which sets of keys could sign a moment ago. Keys with a PIN
// are not among them.
type readiness struct {
	mu      sync.Mutex
	until   map[string]time.Time // by set
	changes int                  // how often it has been forgotten
}

// has reports whether the set could sign a moment ago.
func (r *readiness) has(set string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.until[set])
}

// ask is called before the agent is asked, and put with what it returned, when the
// agent has answered: what the agent has announced in between makes the answer
// too old. Without somebody who listens to the agent, nothing is remembered.
func (r *readiness) ask() (changes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes
}

func (r *readiness) put(set string, changes int, listening bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if listening && changes == r.changes {
		if r.until == nil {
			r.until = map[string]time.Time{}
		}
		r.until[set] = time.Now().Add(recent)
	}
}

// forget is called when something changes at the agent.
func (r *readiness) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	clear(r.until)
}

// ready finds out whether the profile's key can sign now, so that a person hears
// of it here and not from a failed connection. Where it wants its PIN, the person
// is asked.
func (r *request) ready(ctx context.Context, prof *profile.Profile) error {
	b := r.broker
	if b.ready.has(prof.Key) {
		return nil
	}
	locked := ""
	err := b.patiently(ctx, func(ctx context.Context) error {
		asked := b.ready.ask()
		info, err := b.canSign(ctx, prof.Key)
		if fault.KindOf(err) == fault.PINRequired {
			locked = info.Name
		}
		if err == nil && !info.PIN {
			b.ready.put(prof.Key, asked, b.keys.fault() == nil)
		}
		return err
	})
	if locked == "" || fault.KindOf(err) != fault.PINRequired {
		return err
	}
	return r.unlock(ctx, locked)
}

// unlock has the agent ask the person in front of the process that ran the plugin
// for a key's PIN. The caller hears of it first: a prompt may take over their
// terminal, and whatever is written there afterwards spoils it.
func (r *request) unlock(ctx context.Context, key string) error {
	holder, err := ticket.Parent(r.caller)
	if err != nil {
		return err
	}
	r.say(ctx, "the PIN of key "+key)
	_, err = r.broker.Agent.Unlock(ctx, agentwire.UnlockKeyParameters{Name: key, OnBehalfOf: &agentwire.Reported{
		UID: holder.UID, PID: holder.PID, Start: holder.Start, Unit: r.caller.Unit,
	}})
	if err == nil {
		return nil
	}
	if e, ok := fault.AsError(err); ok && e.Kind == fault.PINRequired && e.Next.Do == "" {
		unlock := *e
		unlock.Next = fault.Next{Do: fault.Unlock, Key: key}
		return &unlock
	}
	return err
}

// canSign asks the agent whether a set has a key that can sign in now, and returns
// it, also when it wants its PIN.
func (b *Broker) canSign(ctx context.Context, set string) (agentwire.Key, error) {
	k, err := b.Agent.Current(ctx, set)
	if err != nil {
		return agentwire.Key{}, err
	}
	info := k.Info()
	if !info.PIN || info.UnlockedUntil != nil && time.Now().Before(*info.UnlockedUntil) {
		return info, nil
	}
	return info, &fault.Error{
		Kind:    fault.PINRequired,
		Message: fmt.Sprintf("key %s wants its PIN", info.Name),
		Next:    fault.Next{Do: fault.Unlock, Key: info.Name},
	}
}

// glance is how long status waits for the agent, for all profiles together.
const glance = time.Second

// inquiry asks the agent about the keys of several profiles, each key once. An
// agent that does not answer is not asked again.
type inquiry struct {
	broker *Broker
	ctx    context.Context
	end    context.CancelFunc
	known  map[string]error // by set; nil for a key that can sign
	silent error            // why the agent does not answer
}

func (b *Broker) inquiry(ctx context.Context) *inquiry {
	ctx, end := context.WithTimeout(ctx, glance)
	return &inquiry{broker: b, ctx: ctx, end: end, known: map[string]error{}}
}

// fault returns why a set of keys cannot sign in now.
func (i *inquiry) fault(set string) error {
	err, asked := i.known[set]
	switch {
	case asked:
		return err
	case i.silent != nil:
		return i.silent
	}
	_, err = i.broker.canSign(i.ctx, set)
	var unreachable *client.UnreachableError
	switch {
	case i.ctx.Err() != nil:
		err = hangs(glance, err)
		i.silent = err
	case errors.As(err, &unreachable):
		i.silent = err
	}
	i.known[set] = err
	return err
}
