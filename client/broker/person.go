package broker

import (
	"slices"
	"sync"

	"holdfast/agent/keys"
	agentwire "holdfast/agent/wire"
	"holdfast/client/profile"
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

// eachTime reports whether using the key takes a person every time.
func eachTime(k agentwire.Key) bool {
	return k.Place != nil && k.Place.TouchPolicy == string(keys.PolicyAlways) || k.Confirm != nil && k.Confirm.When == "always"
}

// alone reports whether each request for a profile gets a handshake of its own,
// because a shared connection would ask the person once for many requests.
func (b *Broker) alone(p *profile.Profile) bool {
	b.keys.mu.Lock()
	defer b.keys.mu.Unlock()
	for name, k := range b.keys.sets[keys.SetOf(p.Key)] {
		if k.each && (p.Key == name || p.Key == keys.SetOf(name)) {
			return true
		}
	}
	return false
}
