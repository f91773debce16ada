package broker

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// agentKeys holds the agent's keys as they were at the last look.
type agentKeys struct {
	mu      sync.Mutex
	started time.Time // of the agent
	sets    sets
}

// sets are keys by set and name.
type sets map[string]map[string]keyState

// keyState is a key at the time of a look.
type keyState struct {
	public    []byte
	leaf      []byte
	expires   time.Time // of its certificate
	fault     bool
	pin       bool
	eachTime  bool      // each use, or each process that uses it, takes a user's touch or confirmation
	confirmed bool      // it takes a confirmation
	unlocked  time.Time // until when; zero when it is locked
}

// replace notes the keys of an agent that started at that time, and returns those
// of before and whether the agent was restarted in between.
func (a *agentKeys) replace(started time.Time, after sets) (before sets, restarted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, restarted = a.sets, !a.started.IsZero() && !a.started.Equal(started)
	a.sets, a.started = after, started
	return before, restarted
}

// snapshot returns the state of each key. Of two with one name it is the one of uid,
// which signs in.
func snapshot(list []agentwire.Key, uid uint32) sets {
	all := sets{}
	for _, k := range list {
		set := keys.SetOf(k.Name)
		if all[set] == nil {
			all[set] = map[string]keyState{}
		}
		if _, taken := all[set][k.Name]; !taken || k.Owner.UID == uid {
			all[set][k.Name] = stateOf(k)
		}
	}
	return all
}

func stateOf(k agentwire.Key) keyState {
	confirmed := k.Confirm != nil && k.Confirm.When != "once"
	s := keyState{
		public: k.PublicKey, fault: k.Fault != "", pin: k.PIN, confirmed: confirmed,
		eachTime: confirmed || k.Place != nil && k.Place.TouchPolicy == string(keys.PolicyAlways),
	}
	if len(k.Chain) > 0 {
		s.leaf = k.Chain[0]
		if leaf, err := x509.ParseCertificate(k.Chain[0]); err == nil {
			s.expires = leaf.NotAfter
		}
	}
	if k.UnlockedUntil != nil {
		s.unlocked = *k.UnlockedUntil
	}
	return s
}

// change is the difference between two looks at a set.
type change int

const (
	same    change = iota
	renewed        // there is a new certificate, or a new generation
	lapsed         // the time that a key was unlocked for has passed
	locked         // a key was locked before that
	gone           // a key that could sign in is gone, is another one or cannot be used
)

// compare returns the change of a set that matters most. A generation whose
// certificate has expired may disappear.
func compare(before, after map[string]keyState, now time.Time) change {
	most := same
	for name, old := range before {
		k, there := after[name]
		usable := len(old.leaf) > 0 && now.Before(old.expires) && !old.fault
		relocked := !old.unlocked.IsZero() && k.unlocked.IsZero()
		switch {
		case usable && (!there || !bytes.Equal(k.public, old.public) || k.fault):
			return gone
		case relocked && now.Before(old.unlocked):
			most = locked
		case relocked:
			most = max(most, lapsed)
		case there && !bytes.Equal(k.leaf, old.leaf):
			most = max(most, renewed)
		}
	}
	for name := range after {
		if _, known := before[name]; !known {
			most = max(most, renewed)
		}
	}
	return most
}

// alone reports whether each request for a profile gets a handshake of its own: a
// shared connection would ask the user once for many requests.
func (a *agentKeys) alone(p *profile.Profile) bool {
	return a.any(p, func(k keyState) bool { return k.eachTime })
}

// mayShare rejects minting with a key that is confirmed for one use or one process:
// a minted credential serves every process of the user until it ends.
func (a *agentKeys) mayShare(p *profile.Profile) error {
	if !a.any(p, func(k keyState) bool { return k.confirmed }) {
		return nil
	}
	return &fault.Error{
		Kind:    fault.Unsupported,
		Message: fmt.Sprintf("key %s is confirmed for each process, and a credential of this mode serves all processes", p.Key),
		Hint:    "use mode proxy, or a key with --confirm once",
	}
}

// any reports whether ok is true of a key that may sign in for a profile.
func (a *agentKeys) any(p *profile.Profile, ok func(keyState) bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, k := range a.sets[keys.SetOf(p.Key)] {
		if ok(k) && (p.Key == name || p.Key == keys.SetOf(name)) {
			return true
		}
	}
	return false
}
