package agent

import (
	"context"
	"fmt"

	"holdfast/agent/store"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// A TPM locks for all users after too many wrong PINs, so the agent counts wrong PINs for
// each uid and sends only a few. A card counts its own tries and reports how many are
// left; the child process that drives the card never spends the last one.

// tries returns how many wrong PINs may still be sent, 0 when that is not known. It
// fails when no try is left, or when there is no device to send a PIN to.
type tries func(context.Context) (int, error)

// triesOf returns the tries of rec's PIN, and checks that the device has the key: it
// does not prompt for a PIN that cannot work, or for the PIN of a card that is not
// there. It takes as long as the callers wait.
func (r *request) triesOf(ctx context.Context, rec store.Record) (tries, error) {
	d, err := r.agent.device(rec.Material.Backend)
	if err != nil {
		return nil, err
	}
	if rec.Material.Card != nil {
		return func(ctx context.Context) (int, error) { return r.onCard(ctx, d, rec.Material) }, nil
	}
	err = d.of(rec.Material).do(ctx, r.caller(), func(ctx context.Context) error { return d.backend.Check(ctx, rec.Material) })
	return func(context.Context) (int, error) { return r.agent.countedTries(rec) }, err
}

// countedTries returns the tries of a device whose tries the agent counts.
func (a *Agent) countedTries(rec store.Record) (int, error) {
	if n := a.Store.PINTriesLeft(rec.Owner.UID, rec.Material.Public); n > 0 {
		return n, nil
	}
	return 0, &fault.Error{Kind: fault.PINBlocked, Message: "too many wrong PINs within an hour", Hint: "wait up to an hour: more wrong PINs would lock the device"}
}

// onCard returns the tries of a key on a card of d.
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

// spendable returns how many of the tries that a card has left may be spent: all but
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

// counted tries a PIN. It records the try before it makes it, so that a crash does not
// give more tries.
func (a *Agent) counted(rec store.Record, try func() (seen bool, err error)) error {
	uid, what := rec.Owner.UID, rec.Material.Public
	if err := a.Store.SpendPINTry(uid, what); err != nil {
		return err
	}
	seen, err := try()
	switch fault.KindOf(err) {
	case "":
		return a.Store.ClearPINTries(uid, what)
	case fault.Busy, fault.DeviceAbsent, fault.DeviceLocked, fault.PINBlocked: // the device did not see the PIN
		seen = false
	}
	if !seen {
		if e := a.Store.ReturnPINTry(uid, what); e != nil {
			a.Log.Error("PIN try", "error", e)
		}
	}
	return err
}
