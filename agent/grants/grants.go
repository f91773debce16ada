// Package grants remembers what users have granted: the keys that a PIN unlocked, the
// uses that a user confirmed, and the unlocks and confirmations in progress. Locking a
// key ends all three.
//
// Start at [Grants.Begin] and [Grants.Lock]. A grant saves the user a prompt and
// nothing more: the device alone decides whether a key signs.
package grants

import (
	"maps"
	"sync"
	"time"
)

// Key names a key: its owner's uid, and its name there.
type Key struct {
	Owner uint32
	Name  string
}

// Unit names the device that holds a key, and the unit of it, such as one card. Unit
// is empty where the device has no units.
type Unit struct{ Backend, Unit string }

// Use is what a user confirms: one operation with a key, by one process or, where
// Process is empty, by any.
type Use struct {
	Key       Key
	Operation string
	Process   string
}

// maxConfirmations is how many confirmed uses are remembered. Beyond that, one is
// evicted for each new one, and the user is asked again.
const maxConfirmations = 1024

// Grants are the grants of one agent. Its methods are safe for concurrent use.
type Grants struct {
	now func() time.Time

	mu        sync.Mutex
	unlocked  map[Key]grant
	confirmed map[Use]grant
	pending   map[*Pending]struct{}
}

// grant is how long something is granted. It ends earlier when the unit goes.
type grant struct {
	until time.Time // of a confirmation, zero means until the key is locked
	unit  Unit
}

func (g grant) holds(now time.Time) bool { return g.until.IsZero() || now.Before(g.until) }

// New returns an empty set of grants, which end by the clock now.
func New(now func() time.Time) *Grants {
	return &Grants{now: now, unlocked: map[Key]grant{}, confirmed: map[Use]grant{}, pending: map[*Pending]struct{}{}}
}

// Pending is an unlock or a confirmation in progress. A lock of its key cancels it:
// nothing that it grants may outlive the lock.
type Pending struct {
	grants    *Grants
	key       Key
	unit      Unit
	cancelled bool // grants.mu guards it
}

// Begin notes that key, which is on unit, is being unlocked or confirmed, until
// [Pending.End].
func (g *Grants) Begin(key Key, unit Unit) *Pending {
	p := &Pending{grants: g, key: key, unit: unit}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pending[p] = struct{}{}
	return p
}

// End notes that the unlock or the confirmation is over, whatever its outcome.
func (p *Pending) End() {
	p.grants.mu.Lock()
	defer p.grants.mu.Unlock()
	delete(p.grants.pending, p)
}

// Unlock notes that the key is unlocked until then, and reports whether it is: it is
// not when the key was locked after Begin. Confirmations that were given before an
// earlier unlock ended do not count for the new one.
func (p *Pending) Unlock(until time.Time) bool {
	g := p.grants
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.cancelled {
		return false
	}
	if !g.isUnlocked(p.key) {
		g.forget(p.key)
	}
	g.unlocked[p.key] = grant{until, p.unit}
	return true
}

// Confirm notes that a user confirmed a use of the key until then, or until the key
// is locked for the zero time. It does nothing when the key was locked after Begin.
func (p *Pending) Confirm(operation, process string, until time.Time) {
	g := p.grants
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.cancelled {
		return
	}
	if len(g.confirmed) >= maxConfirmations {
		now := g.now()
		maps.DeleteFunc(g.confirmed, func(_ Use, old grant) bool { return !old.holds(now) })
	}
	for old := range g.confirmed {
		if len(g.confirmed) < maxConfirmations {
			break
		}
		delete(g.confirmed, old)
	}
	g.confirmed[Use{p.key, operation, process}] = grant{until, p.unit}
}

// Confirmed reports whether a user has confirmed u and the confirmation still
// holds.
func (g *Grants) Confirmed(u Use) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.confirmed[u]
	return ok && c.holds(g.now())
}

// UnlockedUntil returns until when a key is unlocked, nil for a locked key.
func (g *Grants) UnlockedUntil(key Key) *time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isUnlocked(key) {
		return nil
	}
	until := g.unlocked[key].until
	return &until
}

// Open reports whether a key has a grant, or one in progress.
func (g *Grants) Open(key Key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open(key)
}

// Lock ends the grants of a key and cancels those in progress. It reports whether
// there were any.
func (g *Grants) Lock(key Key) (was bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was = g.open(key)
	g.lock(key)
	return was
}

// LockUnit is [Grants.Lock] for every key on a unit. It returns the keys that were
// unlocked or confirmed.
func (g *Grants) LockUnit(unit Unit) []Key {
	g.mu.Lock()
	defer g.mu.Unlock()
	locked := map[Key]struct{}{}
	for key, u := range g.unlocked {
		if u.unit == unit {
			locked[key] = struct{}{}
		}
	}
	for use, c := range g.confirmed {
		if c.unit == unit {
			locked[use.Key] = struct{}{}
		}
	}
	for p := range g.pending {
		p.cancelled = p.cancelled || p.unit == unit
	}
	var list []Key
	for key := range locked {
		g.lock(key)
		list = append(list, key)
	}
	return list
}

// Stale ends the grants of a key of which the device says that it is locked, and
// reports whether it did. Until is what [Grants.UnlockedUntil] returned before the
// device was asked: where it is another time now, the key was unlocked again since,
// and its grants stay. Stale cancels nothing that is in progress.
func (g *Grants) Stale(key Key, until *time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until == nil || !g.unlocked[key].until.Equal(*until) {
		return false
	}
	g.forget(key)
	return true
}

// The functions below are called with mu held.

func (g *Grants) lock(key Key) {
	g.forget(key)
	for p := range g.pending {
		p.cancelled = p.cancelled || p.key == key
	}
}

func (g *Grants) forget(key Key) {
	delete(g.unlocked, key)
	maps.DeleteFunc(g.confirmed, func(u Use, _ grant) bool { return u.Key == key })
}

func (g *Grants) isUnlocked(key Key) bool { return g.now().Before(g.unlocked[key].until) }

func (g *Grants) open(key Key) bool {
	if g.isUnlocked(key) {
		return true
	}
	now := g.now()
	for use, c := range g.confirmed {
		if use.Key == key && c.holds(now) {
			return true
		}
	}
	for p := range g.pending {
		if p.key == key {
			return true
		}
	}
	return false
}
