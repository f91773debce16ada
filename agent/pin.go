package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"holdfast/agent/keys"
	"holdfast/agent/policy"
	"holdfast/agent/prompt"
	"holdfast/agent/queue"
	"holdfast/agent/store"
)

// An asked is a key whose PIN a person is asked for.
type asked struct {
	op     policy.Operation // what it is wanted for
	rec    store.Record
	lasts  time.Duration // how long the PIN unlocks the key
	insist bool          // ask although the person closed the prompt a moment ago
}

// askPIN has the person asked for a key's PIN, together with everybody else who
// wants it now, and returns when the key is unlocked. Whose prompt it is decides
// for how long.
func (r *request) askPIN(ctx context.Context, k asked) error {
	if r.agent.Person == nil || r.still(policy.Unlock, k.rec) != nil {
		return wantsPIN(k.rec)
	}
	id := idOf(k.rec)
	err := r.agent.prompts.put(ctx, r, question{
		what: fmt.Sprintf("the PIN of %d/%s", id.owner, id.name), share: "unlock", insist: k.insist,
		ask: func(a *asking) error {
			if k.op != policy.Unlock && r.agent.unlockedUntil(id) != nil {
				return nil // by a prompt that ended just before
			}
			return r.unlockByPrompt(a, k)
		},
	})
	return explained(err, keys.PINRequired, pinWanted, "holdfast unlock "+k.rec.Name)
}

const pinWanted = "the key is locked with a PIN"

// wantsPIN is the answer for a locked key where nobody is asked.
func wantsPIN(rec store.Record) error {
	return &keys.Error{Kind: keys.PINRequired, Message: pinWanted, Hint: "holdfast unlock " + rec.Name}
}

// unlockByPrompt asks until the PIN is right. Each PIN is tried in the name of
// somebody who waits for it and whom policy still lets unlock the key by then:
// who asked first may have left.
func (r *request) unlockByPrompt(a *asking, k asked) error {
	s, owner, rec := r.subject(k.op, k.rec), k.rec.Owner.UID, k.rec
	if err := r.there(a.ctx, rec); err != nil {
		return err
	}
	return r.agent.untilRight(a.ctx, s, owner, pinName(rec.Material), func(pin []byte) error {
		if err := checkPIN(rec.Material, pin); err != nil {
			return err
		}
		by := r.agent.prompts.firstOf(a, func(w *request) bool { return w.still(policy.Unlock, rec) == nil })
		if by == nil {
			return denied(policy.Unlock, rec.Name, r.conn.peer.UID)
		}
		return by.unlockAudited(a.ctx, rec, pin, k.lasts)
	})
}

// there makes sure that the device has the key, before a person types a PIN for it
// in vain or takes another card's prompt for this one's.
func (r *request) there(ctx context.Context, rec store.Record) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	d, err := r.agent.device(rec.Material.Backend)
	if err != nil {
		return err
	}
	return d.of(rec.Material).do(ctx, r.caller(), func(ctx context.Context) error { return d.backend.Check(ctx, rec.Material) })
}

// unlockAudited unlocks rec, and records this as a request of its own.
func (r *request) unlockAudited(ctx context.Context, rec store.Record, pin []byte, lasts time.Duration) error {
	e := entry{
		op: policy.Unlock, key: rec.Name, owner: rec.Owner, purpose: rec.Purpose,
		rule: r.decide(policy.Unlock, rec.Name, rec.Owner).Rule, detail: map[string]string{"pin": "prompt"},
	}
	if err := r.permit(e); err != nil {
		return err
	}
	r.unlocked = true
	return r.outcome(e, r.unlockWith(ctx, rec, pin, lasts))
}

// maxAnswers bounds how often one prompt comes again, answers that cannot be a PIN
// included.
const maxAnswers = 5

// untilRight asks for a PIN until prove takes it, nobody waits for it, or there
// are no more tries. Prove counts the tries; nothing is sent twice.
func (a *Agent) untilRight(ctx context.Context, s prompt.Subject, owner uint32, what []byte, prove func(pin []byte) error) error {
	var err error
	for range maxAnswers {
		if s.Tries = a.Store.PINTriesLeft(owner, what); s.Tries == 0 {
			return noTries(what)
		}
		var pin []byte
		err = a.prompted(ctx, "pin", func(ctx context.Context) (err error) { pin, err = a.Person.PIN(ctx, s); return err })
		if err != nil {
			return err
		}
		err = prove(pin)
		if who, ok := a.Person.(Rememberer); ok && err == nil {
			who.Right(s, pin)
		}
		clear(pin)
		if s.Again = whyAgain(err); s.Again == "" || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// whyAgain is what to tell a person whose PIN came to err, before asking again; it
// is empty where that is no use.
func whyAgain(err error) string {
	switch kind := keys.KindOf(err); {
	case errors.Is(err, errShut):
		return ""
	case kind == keys.PINRequired:
		return "wrong PIN"
	case kind == keys.BadRequest:
		return err.Error() // it cannot be one
	}
	return ""
}

// noTries is the answer where a person would be asked in vain.
func noTries(what []byte) error {
	err := &keys.Error{Kind: keys.PINBlocked, Message: "too many wrong PINs within an hour", Hint: "wait, so that the device does not lock"}
	if bytes.HasPrefix(what, []byte(cardPrefix)) {
		return cardBlocked(err)
	}
	return err
}

// pinName names a key's PIN in the ledger of tries: a card has one for all its
// keys.
func pinName(m keys.Material) []byte {
	if m.Card != nil {
		return pinOf(m.Card.Serial)
	}
	return m.Public
}

// checkPIN refuses what cannot be the PIN of m, before a try is counted.
func checkPIN(m keys.Material, pin []byte) error {
	if m.Card != nil {
		return keys.CheckCardPIN(pin)
	}
	return keys.CheckPIN(pin)
}

// unlockWith proves a PIN to the device and notes until when the key is unlocked.
// A key that was locked while this was under way stays locked.
func (r *request) unlockWith(ctx context.Context, rec store.Record, pin []byte, lasts time.Duration) error {
	d, err := r.agent.device(rec.Material.Backend)
	if err != nil {
		return err
	}
	// By the wall clock alone: the monotonic clock stands still while the machine
	// sleeps, and the time that a key is unlocked for must not.
	until := time.Now().Add(lasts).UTC().Round(0)
	o := r.agent.begin(rec)
	defer r.agent.end(o)
	if err := r.tryPIN(ctx, d, rec, pin, until); err != nil {
		return err
	}
	if !r.agent.setUnlocked(o, until) {
		d.backend.Lock(&rec.Material)
		return errShut
	}
	return nil
}

// errShut is that a key was locked while it was being unlocked. The PIN was right.
var errShut = &keys.Error{Kind: keys.PINRequired, Message: "the key was locked while it was being unlocked", Hint: "holdfast unlock NAME"}

// tryPIN proves a PIN to the device. The try is written down before it is made, so
// that a crash cannot give anybody more tries.
func (r *request) tryPIN(ctx context.Context, d *device, rec store.Record, pin []byte, until time.Time) error {
	records, uid, what := r.agent.Store, rec.Owner.UID, pinName(rec.Material)
	err := records.SpendPINTry(uid, what)
	if rec.Material.Card != nil {
		err = cardBlocked(err)
	}
	if err != nil {
		return err
	}
	seen, err := lend(ctx, d.of(rec.Material), r.caller(), pin, func(ctx context.Context, pin []byte) error {
		return d.backend.Unlock(ctx, rec.Material, pin, until)
	})
	if seen {
		r.agent.counts.pinTries.Add(1, d.backend.Name(), outcomeOf(err))
	}
	kind := keys.KindOf(err)
	switch kind {
	case "":
		return records.ClearPINTries(uid, what)
	case keys.Busy, keys.DeviceAbsent, keys.DeviceLocked, keys.PINBlocked: // kinds that say that it did not see it
		seen = false
	}
	// A card counts its tries itself, and its last one is never spent: only a PIN
	// that it called wrong counts here too, not a card that was pulled out.
	if !seen || rec.Material.Card != nil && kind != keys.PINRequired {
		if e := records.ReturnPINTry(uid, what); e != nil {
			r.agent.Log.Error("PIN try", "error", e)
		}
	}
	return err
}

// lend runs work in the caller's turn with a copy of a secret, since work may go on
// when its caller has left and wiped theirs. It reports whether work began; after
// it returned, work that had not will not.
func lend(ctx context.Context, at worker, c queue.Caller, secret []byte, work func(context.Context, []byte) error) (began bool, err error) {
	var begun atomic.Bool // by work or, to call it off, by us
	secret = bytes.Clone(secret)
	err = at.do(ctx, c, func(ctx context.Context) error {
		if begun.Swap(true) {
			return context.Canceled
		}
		defer clear(secret)
		return work(ctx, secret)
	})
	if began = begun.Swap(true); !began {
		clear(secret)
	}
	return began, err
}
