package agent

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"holdfast/agent/keys"
	"holdfast/agent/policy"
	"holdfast/agent/store"
	"holdfast/agent/wire"
)

// unlockKey proves a PIN to the device. The try is written down before it is
// made, so that a crash cannot give anybody more tries.
func (r *request) unlockKey(ctx context.Context, p *wire.UnlockKeyParameters) (*wire.UnlockKeyReply, error) {
	defer clear(p.PIN)
	rec, e, err := r.find(policy.Unlock, p.Name)
	if err != nil {
		return nil, err
	}
	until, err := r.agent.unlockTime(p.Seconds)
	if err == nil {
		err = checkUnlock(rec, p.PIN)
	}
	if err != nil {
		return nil, r.deny(e, err)
	}
	d, err := r.agent.device(rec.Material.Backend)
	if err != nil {
		return nil, err
	}
	if err := r.permit(e); err != nil {
		return nil, err
	}
	err = r.tryPIN(ctx, d, rec, p.PIN, until)
	if err := r.outcome(e, err); err != nil {
		return nil, err
	}
	r.agent.setUnlocked(rec, until)
	return &wire.UnlockKeyReply{UnlockedUntil: until}, nil
}

// unlockTime is a time by the wall clock alone: the monotonic clock stands still
// while the machine sleeps, and the time that a key is unlocked for must not.
func (a *Agent) unlockTime(seconds int) (time.Time, error) {
	d := a.Limits.UnlockDefault
	if seconds != 0 {
		d = time.Duration(seconds) * time.Second
	}
	if seconds < 0 || d > a.Limits.UnlockMax {
		return time.Time{}, &keys.Error{Kind: keys.BadRequest, Message: fmt.Sprintf("a key is unlocked for at most %d s", int(a.Limits.UnlockMax.Seconds()))}
	}
	return time.Now().Add(d).UTC().Round(0), nil
}

func checkUnlock(rec store.Record, pin []byte) error {
	if !rec.Material.PIN {
		return &keys.Error{Kind: keys.BadRequest, Message: fmt.Sprintf("key %q has no PIN", rec.Name), Hint: "it signs without being unlocked"}
	}
	return keys.CheckPIN(pin)
}

func (r *request) tryPIN(ctx context.Context, d *device, rec store.Record, pin []byte, until time.Time) error {
	records, uid, what := r.agent.Store, rec.Owner.UID, rec.Material.Public
	if err := records.SpendPINTry(uid, what); err != nil {
		return err
	}
	var begun atomic.Bool  // by the device's work or, to call it off, by us
	pin = bytes.Clone(pin) // the work may go on when its caller has left and wiped theirs
	err := d.do(ctx, r.caller(), func(ctx context.Context) error {
		defer clear(pin)
		if begun.Swap(true) {
			return context.Canceled
		}
		return d.backend.Unlock(ctx, rec.Material, pin, until)
	})
	unseen := !begun.Swap(true)
	if !unseen {
		r.agent.counts.pinTries.Add(1, d.backend.Name(), outcomeOf(err))
	}
	switch keys.KindOf(err) {
	case "":
		return records.ClearPINTries(uid, what)
	case keys.Busy, keys.DeviceAbsent, keys.DeviceLocked, keys.PINBlocked: // kinds that say so
		unseen = true
	}
	if unseen { // the device never saw the PIN
		if e := records.ReturnPINTry(uid, what); e != nil {
			r.agent.Log.Error("PIN try", "error", e)
		}
	}
	return err
}

func (r *request) lockKeys(_ context.Context, p *wire.LockKeysParameters) (*wire.Empty, error) {
	if p.Name != "" {
		rec, e, err := r.find(policy.Unlock, p.Name)
		if err == nil {
			err = r.lock(rec, e)
		}
		return &wire.Empty{}, err
	}
	for _, rec := range r.agent.Store.List() {
		if rec.Owner.UID == r.conn.peer.UID && r.agent.unlockedUntil(idOf(rec)) != nil {
			if err := r.lock(rec, entry{key: rec.Name, owner: rec.Owner, purpose: rec.Purpose}); err != nil {
				return nil, err
			}
		}
	}
	return &wire.Empty{}, nil
}

// lock locks the key first and records it afterwards: a log that cannot be written
// must not keep a key open.
func (r *request) lock(rec store.Record, e entry) error {
	r.agent.lock(rec)
	e.op = "lock"
	return r.outcome(e, nil)
}

// lock forgets what unlocking left. It needs no turn in the queue: a key must
// lock while the device is busy.
func (a *Agent) lock(rec store.Record) {
	if d, err := a.device(rec.Material.Backend); err == nil {
		d.backend.Lock(&rec.Material)
	}
	a.setUnlocked(rec, time.Time{})
}

func (a *Agent) setUnlocked(rec store.Record, until time.Time) {
	id := idOf(rec)
	what := "unlock"
	a.mu.Lock()
	a.unlocked[id] = until
	if until.IsZero() {
		what = "lock"
		delete(a.unlocked, id)
	}
	a.mu.Unlock()
	a.watch.publish(event{what: what, name: rec.Name, key: &id})
}

func (a *Agent) unlockedUntil(id keyID) *time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	until, ok := a.unlocked[id]
	if !ok || time.Now().After(until) {
		return nil
	}
	return &until
}
