package broker

import (
	"slices"
	"sync"

	"holdfast/internal/keys"
)

// touches holds the keys that wait for a touch of their device now, as the agent
// announces.
type touches struct {
	mu   sync.Mutex
	keys []string
}

// set notes whether a key waits for its touch.
func (t *touches) set(key string, waits bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys = slices.DeleteFunc(t.keys, func(k string) bool { return k == key })
	if waits {
		t.keys = append(t.keys, key)
	}
}

// clear is called when the agent is not watched any more.
func (t *touches) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys = nil
}

// of returns the key of a set that waits, or "".
func (t *touches) of(set string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.keys {
		if k == set || keys.SetOf(k) == set {
			return k
		}
	}
	return ""
}
