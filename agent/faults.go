package agent

import "sync"

// keyFaults are the keys that are set aside because they gave a wrong signature, each
// with what is wrong with it. The zero value has none.
type keyFaults struct{ flaws sync.Map }

// of returns what is wrong with a key, or nothing.
func (f *keyFaults) of(id keyID) string {
	flaw, _ := f.flaws.Load(id)
	text, _ := flaw.(string)
	return text
}

// setAside keeps a key from signing until the agent reloads.
func (a *Agent) setAside(id keyID, flaw string) {
	a.faults.flaws.Store(id, flaw)
	a.Log.Error("key set aside", "owner", id.Owner, "key", id.Name, "fault", flaw)
	a.publishKey("key", id)
}
