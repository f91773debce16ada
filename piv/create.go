package piv

import (
	"context"
	"errors"
	"fmt"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/attestation"
	"holdfast/piv/wire"
)

// Create makes a key in a slot of a card, and has the card prove that it made it. The
// slot is the template's, or the first free one of 9a and 82 to 95. Create replaces
// the content of a slot only when the template allows it. The card's management key
// comes from the template, or from the card, which releases it for its PIN.
//
// Create rejects a card that cannot prove this before it makes a key, unless the
// template allows such a key. After a failure later on, the new key stays in its
// slot, which the error names: cards before firmware 5.7 cannot remove a key.
func (p *PIV) Create(ctx context.Context, t keys.Template) (keys.Material, error) {
	request, err := asked(t)
	if err != nil {
		return keys.Material{}, err
	}
	c, err := p.scanner.find(ctx, t.Card.Serial)
	if err != nil {
		return keys.Material{}, aboutCard(err, t.Card.Serial)
	}
	if err := able(c.firmware, t.Algorithm, request.RSABits); err != nil {
		return keys.Material{}, err
	}
	if err := p.prepare(ctx, c, t, &request); err != nil {
		return keys.Material{}, err
	}
	limits := p.config.limits
	reply, child, err := c.worker.ask(ctx, c.serial, request, callOptions{limit: limits.generate, grace: limits.grace})
	if err != nil {
		if child != nil && (ctx.Err() != nil || errors.As(err, new(*deathError))) {
			err = leaves(err, "a new key may be", c.serial, request.Slot)
		}
		return keys.Material{}, err
	}
	m, err := p.made(c, t, request, reply)
	if err != nil {
		return keys.Material{}, leaves(err, "a new key is", c.serial, request.Slot)
	}
	return m, nil
}

// leaves adds to err the key that stays on the card.
func leaves(err error, what string, serial uint32, slot string) error {
	w := wire.FromError(err)
	w.Leaves(what, slot, serial)
	e := w.Keys()
	e.Err = err
	return e
}

// prepare checks that the card can prove which keys it made, and chooses a slot when
// the request names none.
func (p *PIV) prepare(ctx context.Context, c card, t keys.Template, request *wire.Request) error {
	if request.Slot != "" && t.Card.AllowUnattested {
		return nil
	}
	reply, _, err := c.worker.ask(ctx, c.serial, wire.Request{Op: wire.Inspect}, p.inspecting())
	if err != nil {
		return err
	}
	if reply.Card == nil {
		return incomplete("the card's state")
	}
	if !t.Card.AllowUnattested {
		if err := p.attests(c, reply.Attester); err != nil {
			return err
		}
	}
	if request.Slot == "" {
		request.Slot, err = freeSlot(reply.Card, c)
	}
	return err
}

// attests returns an error unless f9 is the certificate of a card whose statements
// are trusted.
func (p *PIV) attests(c card, f9 []byte) error {
	if len(f9) == 0 {
		e := unproven(c.serial)
		e.Message = fmt.Sprintf("card %d has no attestation key", c.serial)
		return e
	}
	return attestation.VerifyAttester(f9, p.config.Roots)
}

// incomplete is the error for a reply that lacks a member.
func incomplete(what string) error {
	return &fault.Error{Kind: fault.DeviceFailed, Message: "the card's reply lacks " + what}
}

// freeSlot returns an empty slot. It never chooses 9c, 9d and 9e, which are for
// document signatures, decryption and doors.
//
// Before firmware 5.3 an imported key without a certificate is not visible, so that
// no slot is known to be empty.
func freeSlot(found *keys.Card, c card) (string, error) {
	version, err := attestation.ParseFirmware(c.firmware)
	if err != nil || version.Less(attestation.Firmware{Major: 5, Minor: 3}) {
		return "", &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("card %d, of firmware %s, cannot tell which of its slots are empty", c.serial, c.firmware),
			Hint: "name one whose key may be lost: --slot SLOT --overwrite"}
	}
	taken := map[string]bool{}
	for _, s := range found.Slots {
		taken[s.Slot] = true
	}
	if !taken["9a"] {
		return "9a", nil
	}
	for n := 0x82; n <= 0x95; n++ {
		if slot := fmt.Sprintf("%02x", n); !taken[slot] {
			return slot, nil
		}
	}
	return "", &fault.Error{Kind: fault.Busy, Message: fmt.Sprintf("card %d has no free slot", c.serial), Hint: "name one whose key may be lost: --slot SLOT --overwrite"}
}

// made checks the card's reply about the key that it made.
func (p *PIV) made(c card, t keys.Template, request wire.Request, reply *wire.Reply) (keys.Material, error) {
	if reply.Slot == nil {
		return keys.Material{}, incomplete("the new key")
	}
	k := &key{public: reply.Slot.Public, record: record{
		Serial: c.serial, Slot: request.Slot, PINPolicy: request.PINPolicy, TouchPolicy: request.TouchPolicy,
		Firmware: c.firmware, Attestation: reply.Attestation,
	}}
	if err := k.sound(*reply.Slot); err != nil {
		return keys.Material{}, err
	}
	if k.algorithm != t.Algorithm || k.bits != request.RSABits {
		return keys.Material{}, &fault.Error{Kind: fault.KeyMismatch, Message: "the card made another kind of key than it was asked for"}
	}
	err := k.proven(p.config.Roots)
	if err != nil && !t.Card.AllowUnattested {
		return keys.Material{}, err
	}
	if err != nil {
		k.Attestation = nil
	}
	return k.material()
}
