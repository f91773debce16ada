package agent

import (
	"context"
	"fmt"

	"holdfast/agent/store"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// A TPM locks for everybody when it has seen too many wrong PINs, so that the
// agent counts them, for each uid, and sends no more than a few. A card counts its
// own, the process next to it never spends the last one, and what is left is the
// card's to say.

// tries asks how many wrong PINs may still be sent, 0 when that is not known. It
// fails where there is none, or nothing to send one to.
type tries func(context.Context) (int, error)

// triesOf returns the tries of rec's PIN, and makes sure that the device has the
// key: a person is not to type a PIN in vain, or to take another card's prompt for
// this one's. How long that takes is up to who waits for it.
func (r *request) triesOf(ctx context.Context, rec store.Record) (tries, error) {
	d, err := r.agent.device(rec.Material.Backend)
	if err != nil {
		return nil, err
	}
	if rec.Material.Card != nil {
		return func(ctx context.Context) (int, error) { return r.onCard(ctx, d, rec.Material) }, nil
	}
	err = d.of(rec.Material).do(ctx, r.caller(), func(ctx context.Context) error { return d.backend.Check(ctx, rec.Material) })
	return func(context.Context) (int, error) { return r.agent.inLedger(rec) }, err
}

// inLedger is tries of a device whose tries the agent counts.
func (a *Agent) inLedger(rec store.Record) (int, error) {
	if n := a.Store.PINTriesLeft(rec.Owner.UID, rec.Material.Public); n > 0 {
		return n, nil
	}
	return 0, &fault.Error{Kind: fault.PINBlocked, Message: "too many wrong PINs within an hour", Hint: "wait, so that the device does not lock"}
}

// onCard is tries of a key on a card of d.
func (r *request) onCard(ctx context.Context, d *device, m keys.Material) (int, error) {
	holder, ok := d.backend.(keys.CardHolder)
	if !ok {
		return 0, &fault.Error{Kind: fault.Unsupported, Message: fmt.Sprintf("backend %s has no cards", d.backend.Name())}
	}
	n, err := ask(ctx, d.of(m), r.caller(), func(ctx context.Context) (*int, error) { return holder.TriesLeft(ctx, m) })
	if err != nil {
		return 0, err
	}
	return spendable(m.Card.Serial, n)
}

// spendable is how many of the tries that a card has left may be spent: all but
// the last.
func spendable(serial uint32, left *int) (int, error) {
	switch {
	case left == nil:
		return 0, nil
	case *left > 1:
		return *left - 1, nil
	}
	return 0, &fault.Error{
		Kind: fault.PINBlocked, Message: fmt.Sprintf("card %d has no try of its PIN left that may be spent", serial),
		Next: fault.Next{Do: fault.Unblock, Card: serial},
	}
}

// counted has a PIN tried. The try is written down before it is made, so that a
// crash cannot give anybody more tries.
func (a *Agent) counted(rec store.Record, try func() (seen bool, err error)) error {
	uid, what := rec.Owner.UID, rec.Material.Public
	if err := a.Store.SpendPINTry(uid, what); err != nil {
		return err
	}
	seen, err := try()
	switch fault.KindOf(err) {
	case "":
		return a.Store.ClearPINTries(uid, what)
	case fault.Busy, fault.DeviceAbsent, fault.DeviceLocked, fault.PINBlocked: // kinds that say that it did not see it
		seen = false
	}
	if !seen {
		if e := a.Store.ReturnPINTry(uid, what); e != nil {
			a.Log.Error("PIN try", "error", e)
		}
	}
	return err
}
