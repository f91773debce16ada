package agent

import "sync"

// keyFaults are the keys that are set aside because they gave a wrong signature. The
// zero value has none. Its methods are safe for concurrent use.
type keyFaults struct {
	mu    sync.Mutex
	flaws map[keyID]string
}

// of returns what is wrong with a key, or nothing.
func (f *keyFaults) of(id keyID) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flaws[id]
}

func (f *keyFaults) set(id keyID, flaw string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flaws == nil {
		f.flaws = map[keyID]string{}
	}
	f.flaws[id] = flaw
}

func (f *keyFaults) drop(id keyID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.flaws, id)
}

func (f *keyFaults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.flaws)
}

// setAside keeps a key from signing until the agent reloads.
func (a *Agent) setAside(id keyID, flaw string) {
	a.faults.set(id, flaw)
	a.Log.Error("key set aside", "owner", id.Owner, "key", id.Name, "fault", flaw)
	a.publishKey("key", id)
}
