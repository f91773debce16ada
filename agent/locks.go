package agent

import (
	"fmt"
	"time"

	"holdfast/agent/audit"
	"holdfast/agent/grants"
	"holdfast/agent/store"
	"holdfast/internal/keys"
)

// kindLocked is an audit record about keys that were locked without a request.
const kindLocked audit.Kind = "locked"

// LockAll locks every key, for example before the machine sleeps: an attacker who takes
// a sleeping machine could read its memory. Every key is locked when LockAll returns.
func (a *Agent) LockAll(why string) { a.lockMatching(nil, why) }

// LockUser locks every key of one user, for example when the user's screen locks.
func (a *Agent) LockUser(uid uint32, why string) { a.lockMatching(&uid, why) }

// lockMatching locks the keys of a user, or all for nil, and tells the watchers to end
// the sessions that these keys signed in for, even if no key was unlocked. The audit
// record comes last: a log that cannot be written must not keep a key unlocked.
func (a *Agent) lockMatching(user *uint32, why string) {
	a.watch.publish(event{what: "lock", user: user}) // first: a watcher that lags because of the other events has received it
	locked := 0
	for _, rec := range a.Store.List() {
		if user != nil && rec.Owner.UID != *user {
			continue
		}
		if a.lock(rec) {
			locked++
		}
	}
	if user == nil { // also keys that no record names
		for _, d := range a.devices {
			d.backend.Lock(nil)
		}
	}
	a.Log.Info("locked", "reason", why, "keys", locked)
	r := audit.Record{Kind: kindLocked, Owner: user, Detail: map[string]string{"reason": why, "keys": fmt.Sprint(locked)}}
	if err := a.Audit.Append(r); err != nil {
		a.Log.Error("audit", "error", err)
	}
}

// begin notes that rec is being unlocked or confirmed.
func (a *Agent) begin(rec store.Record) *grants.Pending {
	var unit unitID
	if d, err := a.device(rec.Material.Backend); err == nil {
		unit = d.unitOf(rec.Material)
	}
	return a.grants.Begin(idOf(rec), unit)
}

// lock ends the grants of a key, cancels those in progress, and reports whether there
// were any: if not, it publishes no event. It needs no turn in the queue: a key must
// lock while the device is busy.
func (a *Agent) lock(rec store.Record) (was bool) {
	was = a.grants.Lock(idOf(rec))
	if d, err := a.device(rec.Material.Backend); err == nil {
		d.backend.Lock(&rec.Material)
	}
	if was {
		a.publishKey("lock", idOf(rec))
	}
	return was
}

// publishKey publishes an event about a key.
func (a *Agent) publishKey(what string, id keyID) {
	a.watch.publish(event{what: what, name: id.Name, key: &id})
}

// lockedByDevice notes that the device says that rec is locked. Until is when the
// key's grant ended before the device was asked.
func (a *Agent) lockedByDevice(rec store.Record, until *time.Time) {
	if id := idOf(rec); a.grants.Stale(id, until) {
		a.publishKey("lock", id)
	}
}

// unitChanged notes that a unit of d came or went. The keys on a unit that went are
// locked: the backend has locked its side already.
func (a *Agent) unitChanged(d *device, unit string, gone bool) {
	id := unitID{Backend: d.backend.Name(), Unit: unit}
	d.lanes.Changed(unit, gone)
	state := keys.StateReady
	if gone {
		state = keys.StateAbsent
		for _, key := range a.grants.LockUnit(id) {
			a.publishKey("lock", key)
		}
	}
	d.invalidate()
	a.counts.changes.Add(1, id.Backend, string(state))
	a.Log.Info("device", "backend", id.Backend, "unit", unit, "state", state)
	a.watch.publish(event{what: "device", name: id.Backend, state: string(state)})
}
