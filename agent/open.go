package agent

import (
	"maps"
	"time"

	"holdfast/agent/store"
	"holdfast/internal/keys"
)

// A key is open while it is unlocked, or while a person's yes to its use holds.
// The device alone decides whether it signs: what is known here is for those who
// ask, and so that a person is not asked in vain.

// unlocking is a key that is unlocked.
type unlocking struct {
	until time.Time
	unit  unitID // what it is on
}

// opening is a key that is being unlocked, or asked about. Who locks the key
// meanwhile marks it shut: what comes of it must not outlive the lock.
type opening struct {
	key  keyID
	unit unitID
	shut bool // Agent.mu guards it
}

// begin is called before a key is opened, and end when it is or cannot be.
func (a *Agent) begin(rec store.Record) *opening {
	o := &opening{key: idOf(rec), unit: a.unitOf(rec.Material)}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.openings[o] = struct{}{}
	return o
}

func (a *Agent) end(o *opening) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.openings, o)
}

// lock forgets what unlocking and a person's yes left, also of what is under way,
// and reports whether that changed anything: if not, nobody hears of it. It needs
// no turn in the queue: a key must lock while the device is busy.
func (a *Agent) lock(rec store.Record) (was bool) {
	id := idOf(rec)
	a.mu.Lock()
	was = a.opened(id)
	a.shut(id)
	a.mu.Unlock()
	if d, err := a.device(rec.Material.Backend); err == nil {
		d.backend.Lock(&rec.Material)
	}
	if was {
		a.watch.publish(event{what: "lock", name: rec.Name, key: &id})
	}
	return was
}

// isOpen reports whether a key is open, or being opened.
func (a *Agent) isOpen(id keyID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.opened(id)
}

// shut makes a key closed, also for who is opening it. The caller holds mu.
func (a *Agent) shut(id keyID) {
	a.forget(id)
	for o := range a.openings {
		o.shut = o.shut || o.key == id
	}
}

// forget drops what is known of a key being open. The caller holds mu.
func (a *Agent) forget(id keyID) {
	delete(a.unlocked, id)
	maps.DeleteFunc(a.yeses, func(y yes, _ yesUntil) bool { return y.key == id })
}

// opened reports whether a key is open or being opened. The caller holds mu.
func (a *Agent) opened(id keyID) bool {
	now := time.Now()
	if now.Before(a.unlocked[id].until) {
		return true
	}
	for y, u := range a.yeses {
		if y.key == id && u.holds(now) {
			return true
		}
	}
	for o := range a.openings {
		if o.key == id {
			return true
		}
	}
	return false
}

// setUnlocked notes that a key is unlocked, unless it was locked meanwhile. A yes
// from before the time of the last PIN was over is not good for a new one.
func (a *Agent) setUnlocked(o *opening, until time.Time) bool {
	a.mu.Lock()
	if o.shut {
		a.mu.Unlock()
		return false
	}
	if !time.Now().Before(a.unlocked[o.key].until) {
		a.forget(o.key)
	}
	a.unlocked[o.key] = unlocking{until: until, unit: o.unit}
	a.mu.Unlock()
	a.watch.publish(event{what: "unlock", name: o.key.name, key: &o.key})
	return true
}

// notUnlocked notes that the device says that rec is locked, unless it has been
// unlocked anew since the caller knew until when it was.
func (a *Agent) notUnlocked(rec store.Record, until *time.Time) {
	id := idOf(rec)
	a.mu.Lock()
	same := until != nil && a.unlocked[id].until.Equal(*until)
	if same {
		a.forget(id)
	}
	a.mu.Unlock()
	if same {
		a.watch.publish(event{what: "lock", name: rec.Name, key: &id})
	}
}

func (a *Agent) unlockedUntil(id keyID) *time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	u, ok := a.unlocked[id]
	if !ok || !time.Now().Before(u.until) {
		return nil
	}
	return &u.until
}

// unitChanged notes that a unit of d came or went. What was open on one that went
// is locked: the backend has seen to its side of that.
func (a *Agent) unitChanged(d *device, unit string, gone bool) {
	id := unitID{d.backend.Name(), unit}
	d.queues.changed(unit, gone)
	state := keys.StateReady
	if gone {
		state = keys.StateAbsent
		a.shutUnit(id)
	}
	d.outdated()
	a.counts.changes.Add(1, id.backend, string(state))
	a.Log.Info("device", "backend", id.backend, "unit", unit, "state", state)
	a.watch.publish(event{what: "device", name: id.backend, state: string(state)})
}

// shutUnit makes the keys on a unit closed.
func (a *Agent) shutUnit(unit unitID) {
	shut := map[keyID]bool{}
	a.mu.Lock()
	for id, u := range a.unlocked {
		shut[id] = shut[id] || u.unit == unit
	}
	for y, u := range a.yeses {
		shut[y.key] = shut[y.key] || u.unit == unit
	}
	for o := range a.openings {
		o.shut = o.shut || o.unit == unit
	}
	maps.DeleteFunc(shut, func(_ keyID, on bool) bool { return !on })
	for id := range shut {
		a.shut(id)
	}
	a.mu.Unlock()
	for id := range shut {
		a.watch.publish(event{what: "lock", name: id.name, key: &id})
	}
}
