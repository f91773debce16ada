package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"holdfast/agent/keys"
	"holdfast/client"
	"holdfast/client/broker/fault"
	"holdfast/client/profile"
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
// of it here and not from a failed connection.
func (r *request) ready(ctx context.Context, prof *profile.Profile) error {
	b := r.broker
	if b.ready.has(prof.Key) {
		return nil
	}
	return patiently(ctx, func(ctx context.Context) error {
		asked := b.ready.ask()
		k, err := b.Agent.Current(ctx, prof.Key)
		if err != nil {
			return err
		}
		info := k.Info()
		if !info.PIN {
			b.ready.put(prof.Key, asked, b.keys.fault() == nil)
			return nil
		}
		if info.UnlockedUntil != nil && time.Now().Before(*info.UnlockedUntil) {
			return nil
		}
		return &keys.Error{
			Kind:    keys.PINRequired,
			Message: fmt.Sprintf("key %s wants its PIN", info.Name),
			Hint:    "`holdfast unlock " + info.Name + "`, then try again",
		}
	})
}

// An agent that is being restarted is back within a second. One that gives no
// answer for longer than it lets its device take is stuck.
const (
	absence = time.Second
	again   = 50 * time.Millisecond
	hung    = 5 * time.Second
)

// patiently does something that asks the agent, and again for a while when the
// agent cannot be reached.
func patiently(ctx context.Context, do func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, hung)
	defer cancel()
	for until := time.Now().Add(absence); ; {
		err := do(bounded)
		var unreachable *client.UnreachableError
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return &keys.Error{
				Kind:    fault.AgentUnreachable,
				Message: fmt.Sprintf("the agent gave no answer within %s", hung),
				Hint:    "it hangs: restart it (systemctl --user restart holdfast-agent), and look at its log",
				Err:     err,
			}
		case !errors.As(err, &unreachable) || time.Now().After(until):
			return err
		}
		select {
		case <-bounded.Done():
			return err
		case <-time.After(again):
		}
	}
}
