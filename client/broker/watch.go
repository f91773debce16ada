package broker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

// The backoff of the watch, and how soon after its start, and how often, the keys
// are compared besides: an event may have been missed.
const (
	minBackoff   = 50 * time.Millisecond
	maxBackoff   = 5 * time.Second
	compareFirst = 250 * time.Millisecond
	compareEvery = 30 * time.Second
)

// agentWatch follows the agent, and ends what was issued with a key when the key is
// locked, renewed or gone.
type agentWatch struct {
	agent   *client.Client
	uid     uint32 // the broker's own
	log     *slog.Logger
	issued  *issued
	back    func(context.Context) // called when the agent can be reached again
	keys    agentKeys
	ready   readyKeys
	touches touches

	mu  sync.Mutex
	err error // why the agent is not watched; nil when it is
}

// fault returns why the agent is not watched.
func (w *agentWatch) fault() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *agentWatch) setFault(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// run watches the agent until ctx ends, and again when the connection was lost.
func (w *agentWatch) run(ctx context.Context) {
	for backoff := minBackoff; ctx.Err() == nil; {
		began := time.Now()
		err := w.once(ctx)
		w.setFault(err)
		w.ready.clear()
		w.touches.clear()
		if time.Since(began) > maxBackoff {
			backoff = minBackoff
		}
		w.log.Debug("the watch of the agent ended", "error", err, "retry", backoff)
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// once watches until the connection is lost. A change before the watch began shows
// in the next comparison.
func (w *agentWatch) once(ctx context.Context) error {
	if err := w.compare(ctx); err != nil {
		return err
	}
	w.setFault(nil)
	w.back(ctx)
	ctx, cancel := context.WithCancel(ctx)
	var comparing sync.WaitGroup
	comparing.Go(func() {
		for next := compareFirst; ; next = compareEvery {
			select {
			case <-ctx.Done():
				return
			case <-time.After(next):
				_ = w.compare(ctx) // the watch notices that the agent has gone
			}
		}
	})
	defer comparing.Wait()
	defer cancel()
	return w.agent.Watch(ctx, func(event agentwire.WatchReply) error {
		w.handle(ctx, event)
		return nil
	})
}

// handle acts on an event that the agent announces.
func (w *agentWatch) handle(ctx context.Context, event agentwire.WatchReply) {
	if event.What == "touch" {
		w.touches.set(event.Name, event.State == "wanted")
		return
	}
	w.ready.clear()
	switch {
	case event.What == "lock": // without a name: of all keys
		w.issued.lockKey(event.Name, "locked")
	case event.What == "policy":
		w.issued.dropAll("the agent's policy changed")
	case event.What == "device" && event.State == string(keys.StateIdentityChanged):
		w.issued.dropAll("the device was cleared or is another one")
	case event.What == "key":
		if err := w.compare(ctx); err != nil {
			w.log.Warn("the agent's keys", "error", err)
		}
	}
}

// compare compares the agent and its keys with the last look, and acts on changes.
func (w *agentWatch) compare(ctx context.Context) error {
	status, err := w.agent.Status(ctx)
	if err != nil {
		return err
	}
	list, err := w.agent.Keys(ctx, false)
	if err != nil {
		return err
	}
	now, after := time.Now(), snapshot(list, w.uid)
	before, restarted := w.keys.replace(status.Started, after)
	for set, old := range before {
		switch compare(old, after[set], now) {
		case gone:
			w.issued.dropKey(set, "a key is gone or is another one")
		case locked: // the event was missed
			w.issued.lockKey(set, "locked")
		case lapsed:
			w.issued.retireKey(set, "a key is not unlocked any more")
		case renewed:
			w.issued.retireKey(set, "the key of a profile was renewed")
		}
	}
	if restarted {
		w.restarted(ctx, after)
	}
	return nil
}

// restarted acts on a restart of the agent: it has forgotten the PINs, and may have
// another policy.
func (w *agentWatch) restarted(ctx context.Context, all sets) {
	w.log.Info("the agent was restarted")
	for set, generations := range all {
		names := make([]string, 0, len(generations))
		for name, k := range generations {
			names = append(names, name)
			if k.pin {
				w.issued.lockKey(name, "the agent was restarted")
			}
		}
		if len(w.issued.profilesOf(set)) == 0 {
			continue
		}
		slices.Sort(names)
		d, err := w.agent.CheckPolicy(ctx, agentwire.CheckPolicyParameters{UID: w.uid, Key: names[0], Operation: "sign-tls-client"})
		if err == nil && !d.Allowed {
			w.issued.dropKey(set, "the agent's policy changed")
		}
	}
}
