package piv

import (
	"context"
	"fmt"
	"sync"
	"time"

	"holdfast/agent/keys"
	"holdfast/piv/wire"
)

const hintUnlock = "holdfast unlock NAME"

// needPIN is the answer for a key that is locked.
func needPIN() error {
	return &keys.Error{Kind: keys.PINRequired, Message: "the key is locked with its card's PIN", Hint: hintUnlock}
}

// Unlock proves the card's PIN and lets Sign use this one key until the given
// time. The PIN stays in the card's child alone, until then at most. The card's
// last try is not spent.
func (p *PIV) Unlock(ctx context.Context, m keys.Material, pin []byte, until time.Time) error {
	k, err := parse(m)
	if err != nil {
		return err
	}
	if err := keys.CheckCardPIN(pin); err != nil {
		return err
	}
	if !k.wantsPIN() || !time.Now().Round(0).Before(until.Round(0)) {
		return &keys.Error{Kind: keys.BadRequest, Message: "the key has no PIN, or the time to unlock it for is over"}
	}
	r, err := p.scanner.find(ctx, k.Serial)
	if err != nil {
		return err
	}
	epoch := r.worker.epoch()
	_, c, err := r.worker.ask(ctx, k.Serial, wire.Request{
		Op: wire.Unlock, Slot: k.Slot, Public: k.public, PINPolicy: k.PINPolicy, PIN: pin, Until: until,
	}, p.brief())
	if err != nil {
		return err
	}
	if !r.worker.keep(k.id, until, c, epoch) {
		r.worker.lock(k.Slot)
		return &keys.Error{Kind: keys.PINRequired, Message: "the key was locked while it was being unlocked", Hint: hintUnlock}
	}
	return nil
}

// Lock has the PIN forgotten for one key, or for all. It also works while the card
// does something; a child that does not obey at once is killed, with whatever it
// was doing.
func (p *PIV) Lock(m *keys.Material) {
	slot, id, serial := "", "", uint32(0)
	if m != nil {
		k, err := parse(*m)
		if err != nil || !k.wantsPIN() {
			return // nothing can be unlocked under this name
		}
		slot, id, serial = k.Slot, k.id, k.Serial
	}
	var all sync.WaitGroup
	for _, c := range p.scanner.cards() {
		if serial == 0 || serial == c.serial {
			c.worker.forget(id)
			all.Go(func() { c.worker.lock(slot) })
		}
	}
	all.Wait()
}

// ChangePIN implements keys.CardHolder. What was unlocked on the card is locked.
func (p *PIV) ChangePIN(ctx context.Context, serial uint32, old, new []byte) error {
	return p.change(ctx, serial, "PIN", wire.Request{Op: wire.ChangePIN, Old: old, New: new})
}

// ChangePUK implements keys.CardHolder.
func (p *PIV) ChangePUK(ctx context.Context, serial uint32, old, new []byte) error {
	return p.change(ctx, serial, "PUK", wire.Request{Op: wire.ChangePUK, Old: old, New: new})
}

// Unblock implements keys.CardHolder. What was unlocked on the card is locked.
func (p *PIV) Unblock(ctx context.Context, serial uint32, puk, new []byte) error {
	return p.change(ctx, serial, "PIN", wire.Request{Op: wire.Unblock, Old: puk, New: new})
}

// change replaces a PIN or PUK, which the request's New is to be.
func (p *PIV) change(ctx context.Context, serial uint32, what string, request wire.Request) error {
	for _, secret := range [][]byte{request.Old, request.New} {
		if err := keys.CheckCardPIN(secret); err != nil {
			return err
		}
	}
	if factory[what] == string(request.New) {
		return &keys.Error{Kind: keys.BadRequest, Message: fmt.Sprintf("the new %s is the factory's, which everybody knows", what), Hint: "choose another one"}
	}
	return p.manage(ctx, serial, request)
}

// factory is what every new YubiKey is delivered with (developers.yubico.com/PIV,
// "YubiKey and PIV").
var factory = map[string]string{"PIN": "123456", "PUK": "12345678"}

// manage sends a request that changes the card's secrets. What was unlocked with
// the old ones is locked, whether or not it succeeds.
func (p *PIV) manage(ctx context.Context, serial uint32, request wire.Request) error {
	r, err := p.scanner.find(ctx, serial)
	if err != nil {
		return aboutCard(err, serial)
	}
	_, _, err = r.worker.ask(ctx, r.serial, request, p.brief())
	r.worker.forget("")
	r.worker.lock("")
	return err
}

// aboutCard rewords an error that is about a key: a whole card was meant.
func aboutCard(err error, serial uint32) error {
	if keys.KindOf(err) != keys.KeyMismatch {
		return err
	}
	return &keys.Error{Kind: keys.DeviceAbsent, Message: fmt.Sprintf("card %d is in no reader", serial), Hint: fmt.Sprintf("insert card %d", serial)}
}
