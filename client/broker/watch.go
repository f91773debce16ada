package broker

import (
	"context"
	"slices"
	"sync"
	"time"

	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

// How long the broker waits before it watches the agent again, the first time and
// at most; how soon after that it looks whether it has missed something; and how
// often it looks besides.
const (
	againFirst = 50 * time.Millisecond
	againMost  = 5 * time.Second
	lookSoon   = 250 * time.Millisecond
	lookOften  = 30 * time.Second
)

// watched is what the broker knows of the agent's keys.
type watched struct {
	mu      sync.Mutex
	started time.Time                       // when the agent did
	sets    map[string]map[string]keyBefore // by set and name
	err     error                           // why the agent is not watched; nil when it is
}

// keyBefore is a key as it was when it was looked at last.
type keyBefore struct {
	public   []byte
	leaf     []byte
	until    time.Time // the end of its certificate
	fault    bool
	pin      bool
	each     bool      // using it takes a person every time, or for each process
	yes      bool      // and a yes of theirs
	unlocked time.Time // how long it is unlocked; zero when it is not
}

func (w *watched) fault() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *watched) setFault(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// followAgent watches the agent until ctx ends, and again when the agent was away.
func (b *Broker) followAgent(ctx context.Context) {
	for delay := againFirst; ctx.Err() == nil; {
		began := time.Now()
		err := b.watchOnce(ctx)
		b.keys.setFault(err)
		b.ready.forget()
		b.touches.forget()
		if time.Since(began) > againMost {
			delay = againFirst
		}
		b.Log.Debug("the watch of the agent ended", "error", err, "retry", delay)
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
		delay = min(2*delay, againMost)
	}
}

// watchOnce watches until the connection is lost. What changed before, or between
// the look and the watch, shows when it looks again.
func (b *Broker) watchOnce(ctx context.Context) error {
	if err := b.look(ctx); err != nil {
		return err
	}
	b.keys.setFault(nil)
	b.openAll(ctx) // what had to wait for the agent
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		for next := lookSoon; ; next = lookOften {
			select {
			case <-ctx.Done():
				return
			case <-time.After(next):
				_ = b.look(ctx) // the watch notices that the agent has gone
			}
		}
	})
	defer looking.Wait()
	defer cancel()
	return b.Agent.Watch(ctx, func(w agentwire.WatchReply) error {
		b.heard(ctx, w)
		return nil
	})
}

// heard acts on what the agent announces.
func (b *Broker) heard(ctx context.Context, w agentwire.WatchReply) {
	if w.What == "touch" {
		b.touches.heard(w.Name, w.State)
		return
	}
	b.ready.forget()
	switch {
	case w.What == "lock": // without a name: of everything
		b.dropKey(w.Name, "locked")
	case w.What == "policy":
		b.dropAll("the agent's policy changed")
	case w.What == "device" && w.State == string(keys.StateIdentityChanged):
		b.dropAll("the device was cleared or is another one")
	case w.What == "key":
		if err := b.look(ctx); err != nil {
			b.Log.Warn("the agent's keys", "error", err)
		}
	}
}

// dropAll forgets everything that any key signed in for.
func (b *Broker) dropAll(why string) {
	b.Log.Info("connections are cut", "reason", why)
	b.pools.Drop("")
	b.mint.Forget("", nil)
}

// dropKey forgets, for a key or for all when the name is empty, what it signed in
// for, and the tickets too: whoever locks a key wants to be asked again.
func (b *Broker) dropKey(name, why string) {
	for _, p := range b.profilesOf(name) {
		b.Log.Info("connections are cut", "profile", p.Name, "key", name, "reason", why)
		b.pools.Drop(p.Name)
		b.mint.Forget(p.Name, nil)
		b.tickets.ForgetAll(p.Name)
	}
}

// profilesOf returns the profiles that a key, or some key of a set, signs in for,
// all when the name is empty. A profile names a set, or one generation of it.
func (b *Broker) profilesOf(name string) []*profile.Profile {
	all, _, _ := b.shelf.list()
	var list []*profile.Profile
	for _, p := range all {
		if name == "" || p.Key == name || p.Key == keys.SetOf(name) || keys.SetOf(p.Key) == name {
			list = append(list, p)
		}
	}
	return list
}

// look compares the agent and its keys with what they were, and acts on what
// changed.
func (b *Broker) look(ctx context.Context) error {
	status, err := b.Agent.Status(ctx)
	if err != nil {
		return err
	}
	list, err := b.Agent.Keys(ctx, false)
	if err != nil {
		return err
	}
	now := time.Now()
	after := snapshot(list, b.uid)
	b.keys.mu.Lock()
	before, restarted := b.keys.sets, !b.keys.started.IsZero() && !b.keys.started.Equal(status.Started)
	b.keys.sets, b.keys.started = after, status.Started
	b.keys.mu.Unlock()
	for set, old := range before {
		switch compare(old, after[set], now) {
		case gone:
			b.dropKey(set, "a key is gone or is another one")
		case locked: // nobody listened when the agent announced it
			b.dropKey(set, "locked")
		case lapsed:
			b.retire(set, "a key is not unlocked any more")
		case renewed:
			b.retire(set, "the key of a profile was renewed")
		}
	}
	if restarted {
		b.agentRestarted(ctx, after)
	}
	return nil
}

// retire has new requests make a fresh handshake; what is open goes on.
func (b *Broker) retire(set, why string) {
	for _, p := range b.profilesOf(set) {
		b.Log.Info("connections are retired", "profile", p.Name, "key", set, "reason", why)
		b.pools.Retire(p.Name, nil)
	}
}

// agentRestarted acts on what an agent forgets when it ends, and on what it may
// have been told anew: PINs have to be given again, and its policy is perhaps
// another one.
func (b *Broker) agentRestarted(ctx context.Context, sets map[string]map[string]keyBefore) {
	b.Log.Info("the agent was restarted")
	for set, generations := range sets {
		names := make([]string, 0, len(generations))
		for name, k := range generations {
			names = append(names, name)
			if k.pin {
				b.dropKey(name, "the agent was restarted")
			}
		}
		if len(b.profilesOf(set)) == 0 {
			continue
		}
		slices.Sort(names)
		d, err := b.Agent.CheckPolicy(ctx, agentwire.CheckPolicyParameters{UID: b.uid, Key: names[0], Operation: "sign-tls-client"})
		if err == nil && !d.Allowed {
			b.dropKey(set, "the agent's policy changed")
		}
	}
}
