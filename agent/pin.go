package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"holdfast/agent/prompt"
	"holdfast/agent/queue"
	"holdfast/agent/store"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/policy"
)

// A pinRequest is a request to a user for the PIN of a key.
type pinRequest struct {
	op     policy.Operation // what the key is to be used for
	rec    store.Record
	lasts  time.Duration // how long the PIN unlocks the key
	insist bool          // ask although the user closed the prompt a moment ago
}

// askPIN asks the user for a key's PIN and returns when the key is unlocked. All
// requests that need the PIN now share one prompt; the first of them decides for how
// long the key is unlocked.
func (r *request) askPIN(ctx context.Context, k pinRequest) error {
	wanted := pinWanted(k.rec)
	if r.agent.Person == nil || r.still(policy.Unlock, k.rec) != nil {
		return &wanted
	}
	id := idOf(k.rec)
	err := r.agent.prompts.put(ctx, r, question{
		what: fmt.Sprintf("the PIN of %d/%s", id.Owner, id.Name), share: "unlock", insist: k.insist,
		ask: func(a *asking) error {
			if k.op != policy.Unlock && r.agent.grants.UnlockedUntil(id) != nil {
				return nil // by a prompt that ended just before
			}
			return r.unlockByPrompt(a, k)
		},
	})
	return explain(err, wanted)
}

// pinWanted is the error for a locked key where no prompt can be shown.
func pinWanted(rec store.Record) fault.Error {
	return fault.Error{Kind: fault.PINRequired, Message: "key " + rec.Name + " wants its PIN", Next: fault.Next{Do: fault.Unlock, Key: rec.Name}}
}

// unlockByPrompt asks until the PIN is right. Each PIN is tried in the name of a request
// that waits for it and that policy still allows to unlock the key: the request that
// opened the prompt may have left.
func (r *request) unlockByPrompt(a *asking, k pinRequest) error {
	s, rec := r.subject(k.op, k.rec), k.rec
	left, err := r.triesOf(a.ctx, rec)
	if err != nil {
		return err
	}
	known := func(ctx context.Context) (int, error) {
		n, err := left(ctx)
		a.shown.Store(err == nil)
		return n, err
	}
	return r.agent.askUntilRight(a.ctx, s, known, func(pin []byte) error {
		if err := checkPIN(rec.Material, pin); err != nil {
			return &notAPIN{err}
		}
		by := r.agent.prompts.firstOf(a, func(w *request) bool { return w.still(policy.Unlock, rec) == nil })
		if by == nil {
			return denied(policy.Unlock, rec.Name, r.conn.peer.UID)
		}
		return by.unlockAudited(a.ctx, rec, pin, k.lasts)
	})
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

// maxAnswers bounds the answers to one prompt, those that cannot be a PIN included.
const maxAnswers = 5

// askUntilRight asks for a PIN until prove accepts one, no request waits for it, or no
// tries are left. Each PIN that the user gives goes to prove once.
func (a *Agent) askUntilRight(ctx context.Context, s prompt.Subject, left tries, prove func(pin []byte) error) error {
	var err error
	for range maxAnswers {
		if s.Tries, err = left(ctx); err != nil {
			return err
		}
		var pin []byte
		err = a.prompted(ctx, "pin", func(ctx context.Context) (err error) { pin, err = a.Person.PIN(ctx, s); return err })
		if err != nil {
			return err
		}
		err = prove(pin)
		if p, ok := a.Person.(Rememberer); ok && err == nil {
			p.Store(s, pin)
		}
		clear(pin)
		if s.Again = retryReason(err); s.Again == "" || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// retryReason returns what to tell a user before asking again, after a PIN ended with
// err. It is empty when another PIN would not help.
func retryReason(err error) string {
	var no *notAPIN
	var made *unfinished
	switch {
	case errors.Is(err, errCancelled), errors.As(err, &made): // the PIN was right
		return ""
	case errors.As(err, &no):
		return err.Error()
	case fault.KindOf(err) == fault.PINRequired:
		return "wrong PIN"
	}
	return ""
}

// notAPIN is the error of an answer that cannot be a PIN; no device has seen it.
type notAPIN struct{ error }

// Unwrap returns the cause.
func (n *notAPIN) Unwrap() error { return n.error }

// checkPIN rejects what cannot be the PIN of m, before a try is counted.
func checkPIN(m keys.Material, pin []byte) error {
	if m.Card != nil {
		return keys.CheckCardPIN(pin)
	}
	return keys.CheckPIN(pin)
}

// unlockWith proves a PIN to the device and grants the unlock. A key that was locked
// meanwhile stays locked.
func (r *request) unlockWith(ctx context.Context, rec store.Record, pin []byte, lasts time.Duration) error {
	d, err := r.agent.device(rec.Material.Backend)
	if err != nil {
		return err
	}
	until := r.agent.wallClock().Add(lasts)
	pending := r.agent.begin(rec)
	defer pending.End()
	if err := r.tryPIN(ctx, d, rec, pin, until); err != nil {
		return err
	}
	if !pending.Unlock(until) {
		d.backend.Lock(&rec.Material)
		return &fault.Error{
			Kind: fault.PINRequired, Message: "the key was locked while it was being unlocked",
			Next: fault.Next{Do: fault.Unlock, Key: rec.Name}, Err: errCancelled,
		}
	}
	r.agent.publishKey("unlock", idOf(rec))
	return nil
}

// errCancelled means that a lock cancelled an unlock in progress. The PIN was right.
var errCancelled = errors.New("a lock cancelled the unlock")

// tryPIN proves a PIN to the device, and counts the try.
func (r *request) tryPIN(ctx context.Context, d *device, rec store.Record, pin []byte, until time.Time) error {
	try := func() (seen bool, err error) {
		seen, err = lend(ctx, d.of(rec.Material), r.caller(), pin, func(ctx context.Context, pin []byte) error {
			return d.backend.Unlock(ctx, rec.Material, pin, until)
		})
		if seen && fault.KindOf(err) != fault.Busy { // a busy device has not judged the PIN
			r.agent.counts.pinTries.Add(1, d.backend.Name(), outcomeOf(err))
		}
		return seen, err
	}
	if rec.Material.Card != nil {
		_, err := try()
		return err
	}
	return r.agent.counted(rec, try)
}

// lend runs work in the caller's turn with a copy of a secret, because work may still run
// after its caller has left and wiped the secret. It reports whether work began; work
// that has not begun when lend returns never runs.
func lend(ctx context.Context, at lane, c queue.Caller, secret []byte, work func(context.Context, []byte) error) (began bool, err error) {
	var begun atomic.Bool // by work or, to cancel it, by lend
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
