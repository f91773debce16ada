package piv

import (
	"context"
	"sync"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
)

// needPIN is the answer for a key that is locked.
func needPIN() error {
	return &fault.Error{Kind: fault.PINRequired, Message: "the key is locked with its card's PIN", Next: fault.Next{Do: fault.Unlock}}
}

// Unlock proves the card's PIN and lets Sign use this one key until the given time.
// Only the card's child keeps the PIN, no longer than that. The card's last try is
// not spent.
func (p *PIV) Unlock(ctx context.Context, m keys.Material, pin []byte, until time.Time) error {
	k, err := parse(m)
	if err != nil {
		return err
	}
	if err := keys.CheckCardPIN(pin); err != nil {
		return err
	}
	if !k.wantsPIN() || !time.Now().Round(0).Before(until.Round(0)) {
		return &fault.Error{Kind: fault.BadRequest, Message: "the key has no PIN, or the time to unlock it for is over"}
	}
	r, err := p.scanner.find(ctx, k.Serial)
	if err != nil {
		return err
	}
	epoch := r.worker.epoch(k.id)
	_, c, err := r.worker.ask(ctx, k.Serial, wire.Request{
		Op: wire.Unlock, Slot: k.Slot, Public: k.public, PINPolicy: k.PINPolicy, PIN: pin, Until: until,
	}, p.proving())
	if err != nil {
		return err
	}
	if !r.worker.keep(k.id, until, c, epoch) {
		r.worker.lock(k.Slot)
		return &fault.Error{Kind: fault.Busy, Message: "the key was locked while it was being unlocked", Hint: "unlock it again"}
	}
	return nil
}

// Lock makes the child forget the PIN of one key, or of all. It also works while a
// request is in flight; a child that does not confirm in time is killed.
func (p *PIV) Lock(m *keys.Material) {
	slot, id, serial := "", "", uint32(0)
	if m != nil {
		k, err := parse(*m)
		if err != nil || !k.wantsPIN() {
			return // such a key cannot be unlocked
		}
		slot, id, serial = k.Slot, k.id, k.Serial
	}
	var all sync.WaitGroup
	for _, w := range p.scanner.workers(serial) {
		w.forget(id)
		all.Go(func() { w.lock(slot) })
	}
	all.Wait()
}
