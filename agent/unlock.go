package agent

import (
	"context"
	"fmt"
	"time"

	"holdfast/agent/store"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/policy"
)

// unlockKey unlocks a key with the PIN that the caller gives or, without one, asks a
// user for the PIN.
func (r *request) unlockKey(ctx context.Context, p *agentwire.UnlockKeyParameters) (*agentwire.UnlockKeyReply, error) {
	defer clear(p.PIN)
	if err := r.onBehalfOf(p.OnBehalfOf); err != nil {
		return nil, err
	}
	rec, e, err := r.find(policy.Unlock, p.Name)
	if err != nil {
		return nil, err
	}
	lasts, err := r.agent.unlockTime(p.Seconds)
	if err == nil {
		err = r.sound(rec)
	}
	if err == nil {
		err = checkUnlock(rec, p.PIN)
	}
	if err != nil {
		return nil, r.deny(e, err)
	}
	if len(p.PIN) == 0 {
		err = r.unlockAsking(ctx, e, rec, lasts)
	} else if err = r.permit(e); err == nil {
		err = r.outcome(e, r.unlockWith(ctx, rec, p.PIN, lasts))
	}
	if err != nil {
		return nil, err
	}
	until := r.agent.grants.UnlockedUntil(idOf(rec))
	if until == nil {
		wanted := pinWanted(rec) // it is locked again
		return nil, &wanted
	}
	return &agentwire.UnlockKeyReply{UnlockedUntil: *until}, nil
}

// unlockAsking unlocks rec by a prompt. The request in whose name the PIN was tried has
// its audit records already; a request that shared the prompt is recorded here. A user
// who asks for an unlock gets a prompt even after closing one; a caller that reports
// another process does not.
func (r *request) unlockAsking(ctx context.Context, e entry, rec store.Record, lasts time.Duration) error {
	err := r.askPIN(ctx, pinRequest{op: policy.Unlock, rec: rec, lasts: lasts, insist: r.reported == nil})
	if err != nil {
		return r.deny(e, err)
	}
	if r.unlocked {
		return nil
	}
	e.detail = map[string]string{"pin": "prompt of another request"}
	if err := r.permit(e); err != nil {
		return err
	}
	return r.outcome(e, nil)
}

// unlockTime returns how long a key is unlocked when the caller asks for so many seconds,
// 0 for the default.
func (a *Agent) unlockTime(seconds int) (time.Duration, error) {
	most := a.Limits.UnlockMax
	switch {
	case seconds < 0 || seconds > int(most.Seconds()):
		return 0, &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("a key is unlocked for at most %d s", int(most.Seconds()))}
	case seconds == 0:
		return min(a.Limits.UnlockDefault, most), nil
	}
	return time.Duration(seconds) * time.Second, nil
}

func checkUnlock(rec store.Record, pin []byte) error {
	if !rec.Material.PIN {
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("key %q has no PIN", rec.Name), Hint: "it signs without being unlocked"}
	}
	if len(pin) == 0 {
		return nil
	}
	return checkPIN(rec.Material, pin)
}

// lockKeys locks one key, or all keys of the caller.
func (r *request) lockKeys(_ context.Context, p *agentwire.LockKeysParameters) (*agentwire.Empty, error) {
	if p.Name != "" {
		rec, e, err := r.find(policy.Unlock, p.Name)
		if err != nil {
			return &agentwire.Empty{}, err
		}
		if id := idOf(rec); !r.agent.grants.Open(id) {
			r.announce(event{what: "lock", name: rec.Name, key: &id})
		}
		return &agentwire.Empty{}, r.lock(rec, e)
	}
	r.announce(event{what: "lock", user: &r.conn.peer.UID})
	for _, rec := range r.agent.Store.List() {
		if rec.Owner.UID == r.conn.peer.UID {
			if err := r.lock(rec, entry{key: rec.Name, owner: rec.Owner, purpose: rec.Purpose}); err != nil {
				return nil, err
			}
		}
	}
	return &agentwire.Empty{}, nil
}

// announce tells the watchers what the caller wants locked, even if it is locked
// already: a session that the key signed in for may continue after the unlock ended. The
// rate limit keeps watchers from lagging because of it.
func (r *request) announce(e event) {
	if _, tell := r.agent.rates.lockAnnouncements.count(r.conn.peer.UID, 1, time.Now()); tell {
		r.agent.watch.publish(e)
	}
}

// lock locks the key first and records it afterwards, if that changed anything: a log
// that cannot be written, or whose disk is full, must not keep a key unlocked.
func (r *request) lock(rec store.Record, e entry) error {
	if !r.agent.lock(rec) {
		return nil
	}
	before, record := r.agent.rates.lockRecords.count(r.conn.peer.UID, 1, time.Now())
	if !record {
		return nil
	}
	e.op, e.detail = "lock", withUnrecorded(e.detail, before)
	return r.outcome(e, nil)
}
