package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/agent/store"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/policy"
)

// A job is one key to make or to adopt.
type job struct {
	op  policy.Operation
	rec *store.Record
	t   keys.Template
	do  maker
}

// addOn makes the key on d, stores the record and has the key sign. When a step
// fails, those before it are undone.
func (r *request) addOn(ctx context.Context, at lane, j job) error {
	m, err := r.made(ctx, at, j.t, j.do)
	if err != nil {
		return err
	}
	if err = r.finish(ctx, at.device, j, m); err != nil && m.Card != nil && !adopts(j.t) {
		return leftOnCard(*m.Card, j.rec.Name, err)
	}
	return err
}

// finish stores the record of a key that the device made, and has the key sign once.
func (r *request) finish(ctx context.Context, d *device, j job, m keys.Material) error {
	rec := j.rec
	release, err := r.claimMade(m, j.t)
	if err != nil {
		return err
	}
	defer release()
	releaseKey, err := r.claimKey(m.Public)
	if err != nil { // nothing to undo: what the device holds belongs to the other record
		return err
	}
	defer releaseKey()
	if err := describe(rec, m, d.look(ctx, statusTimeout)); err != nil {
		return r.undo(d, m, err)
	}
	if err := storeError(r.agent.Store.Create(*rec)); err != nil {
		return r.undo(d, m, err)
	}
	err = d.of(m).do(ctx, r.caller(), func(ctx context.Context) error { return d.backend.Persist(ctx, m) })
	if err == nil {
		err = r.trial(ctx, d, *rec, j.t.PIN)
	}
	if err != nil {
		return r.undo(d, m, err, *rec)
	}
	*rec, _ = r.agent.Store.Get(rec.Owner.UID, rec.Name)
	return nil
}

// unfinished is the error of a key that is on its card and has no record.
type unfinished struct{ error }

// Unwrap returns the cause.
func (u *unfinished) Unwrap() error { return u.error }

// leftOnCard returns the error for a new key on a card that could not be finished. It says
// where the key is: only another key replaces it there.
func leftOnCard(p keys.Place, name string, why error) error {
	failure := fault.Error{Kind: fault.KindOf(why), Message: "the new key could not be finished", Err: why}
	if e, ok := fault.AsError(why); ok {
		failure = *e
	} else if errors.Is(why, context.DeadlineExceeded) {
		failure = fault.Error{Kind: fault.Deadline, Message: "the request took too long"}
	}
	failure.Next = fault.Next{Do: fault.Adopt, Key: name, Slot: p.Slot, Card: p.Serial}
	failure.Hint = fmt.Sprintf("a new key is in slot %s of card %d: `%s`", p.Slot, p.Serial, failure.Next)
	return &unfinished{&failure}
}

// made calls do to make a key, with a copy of the PIN that is wiped afterwards.
func (r *request) made(ctx context.Context, at lane, t keys.Template, do maker) (keys.Material, error) {
	result := make(chan keys.Material, 1)
	pin := t.Card.PIN
	if len(t.PIN) > 0 {
		pin = t.PIN
	}
	_, err := lend(ctx, at, r.caller(), pin, func(ctx context.Context, pin []byte) error {
		own := t
		if len(t.PIN) > 0 {
			own.PIN = pin
		}
		if len(t.Card.PIN) > 0 {
			own.Card.PIN = pin
		}
		m, err := do(ctx, at.backend, own)
		result <- m
		return err
	})
	if err != nil {
		return keys.Material{}, err
	}
	return <-result, nil
}

// storeError returns an error of the store as callers see it. Its cause, which names a
// path, goes to the log only.
func storeError(err error) error {
	if _, named := fault.AsError(err); named || err == nil {
		return err
	}
	return &fault.Error{
		Kind: fault.Internal, Message: "the key's record cannot be written",
		Hint: "check the disk that holds the agent's state; the agent's log has the cause", Err: err,
	}
}

// describe completes a record with the key that the device made.
func describe(rec *store.Record, m keys.Material, s keys.Status) error {
	public, err := keys.ParsePublic(m.Public)
	if err != nil {
		return err
	}
	rec.Material = m
	rec.Made = store.Made{Device: s.Device, Maker: s.Maker, Software: s.Software}
	rec.Algorithm, rec.RSABits, err = keys.AlgorithmOf(public)
	return err
}

// trialMessage is not a message of any protocol that a key signs for.
const trialMessage = "holdfast: a new key signs for the first time\x00"

// trial has a new key sign once. It unlocks a key that has a PIN, and locks it again.
// A user who did not touch the card in time gets a second try.
func (r *request) trial(ctx context.Context, d *device, rec store.Record, pin []byte) error {
	s, err := keys.SchemeFor(rec.Algorithm, rec.Purpose)
	if err != nil {
		return err
	}
	if rec.Material.PIN {
		if len(pin) == 0 {
			return nil // adopted: the agent does not know its PIN
		}
		defer d.backend.Lock(&rec.Material)
		_, err := lend(ctx, d.of(rec.Material), r.caller(), pin, func(ctx context.Context, pin []byte) error {
			return d.backend.Unlock(ctx, rec.Material, pin, time.Now().Add(time.Minute))
		})
		if err != nil {
			return err
		}
	}
	for range 2 {
		_, err = r.signature(ctx, policy.Create, rec, s, []byte(trialMessage), func() error { return nil })
		if fault.KindOf(err) != fault.TouchTimeout {
			break
		}
	}
	return err
}

// undo removes what the device holds of a key that no caller has seen, then the key's
// record if there is one, and returns why. The record stays while the device may still
// hold something of the key.
func (r *request) undo(d *device, m keys.Material, why error, stored ...store.Record) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.agent.Limits.Request)
	defer cancel()
	err := d.of(m).do(ctx, r.caller(), func(ctx context.Context) error { return d.backend.Delete(ctx, m) })
	for _, rec := range stored {
		if err == nil {
			err = r.agent.Store.Delete(rec.Owner.UID, rec.Name)
		}
	}
	if err != nil {
		r.agent.Log.Error("a key that could not be finished is still there", "error", err)
	}
	return why
}
