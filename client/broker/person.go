package broker

import (
	"fmt"
	"slices"
	"sync"

	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// touches are the keys that wait for a touch of their device now, as the agent
// announces.
type touches struct {
	mu   sync.Mutex
	keys []string
}

// heard notes that a key begins or ends to wait.
func (t *touches) heard(key, state string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys = slices.DeleteFunc(t.keys, func(k string) bool { return k == key })
	if state == "wanted" {
		t.keys = append(t.keys, key)
	}
}

// forget is called when nobody listens to the agent any more.
func (t *touches) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys = nil
}

// wanted returns the key of a set that waits, or "".
func (t *touches) wanted(set string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.keys {
		if k == set || keys.SetOf(k) == set {
			return k
		}
	}
	return ""
}

// ownYes reports whether a person's yes to the use of the key is good for one use or
// one process, and for nobody else.
func ownYes(k agentwire.Key) bool { return k.Confirm != nil && k.Confirm.When != "once" }

// eachTime reports whether using the key takes a person every time, or for each
// process.
func eachTime(k agentwire.Key) bool {
	return k.Place != nil && k.Place.TouchPolicy == string(keys.PolicyAlways) || ownYes(k)
}

// alone reports whether each request for a profile gets a handshake of its own,
// because a shared connection would ask the person once for many requests.
func (b *Broker) alone(p *profile.Profile) bool {
	return b.anyKey(p, func(k keyBefore) bool { return k.each })
}

// anyKey reports whether ok is true of a key that may sign in for a profile.
func (b *Broker) anyKey(p *profile.Profile, ok func(keyBefore) bool) bool {
	b.keys.mu.Lock()
	defer b.keys.mu.Unlock()
	for name, k := range b.keys.sets[keys.SetOf(p.Key)] {
		if ok(k) && (p.Key == name || p.Key == keys.SetOf(name)) {
			return true
		}
	}
	return false
}

// mayShare refuses to mint with a key whose person says yes to one use or one
// process: what is minted serves every process of the user until it ends.
func (b *Broker) mayShare(p *profile.Profile) error {
	if !b.anyKey(p, func(k keyBefore) bool { return k.yes }) {
		return nil
	}
	return &fault.Error{
		Kind:    fault.Unsupported,
		Message: fmt.Sprintf("key %s wants a person's yes for each process, and what this mode gives out is every process's", p.Key),
		Hint:    "use mode proxy, or a key with --confirm once",
	}
}
