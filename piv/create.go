package piv

import (
	"context"
	"fmt"

	"holdfast/agent/keys"
	"holdfast/piv/wire"
)

// Create makes a key in a slot of a card, and has the card prove it. The slot is
// the one asked for, or the first free one of 9a and 82 to 95; what is in a slot
// is lost only when the template says so. The card's management key comes from the
// template, or from the card, where its PIN opens it.
//
// Whatever fails after the key was made leaves it in its slot, unused: cards
// before firmware 5.7 cannot remove a key.
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
	if request.Slot == "" {
		if request.Slot, err = p.freeSlot(ctx, c); err != nil {
			return keys.Material{}, err
		}
	}
	limits := p.config.limits
	reply, _, err := c.worker.ask(ctx, c.serial, request, patience{limit: limits.generate, grace: limits.grace})
	if err != nil {
		return keys.Material{}, err
	}
	return p.made(c, t, request, reply)
}

// silent is the error of a reply in which something is missing.
func silent(what string) error {
	return &keys.Error{Kind: keys.DeviceFailed, Message: "the card says nothing of " + what}
}

// freeSlot returns a slot with nothing in it. 9c, 9d and 9e are for signatures of
// documents, decryption and doors: nobody is given them unasked.
func (p *PIV) freeSlot(ctx context.Context, c card) (string, error) {
	reply, _, err := c.worker.ask(ctx, c.serial, wire.Request{Op: wire.Inspect}, p.inspecting())
	if err != nil {
		return "", err
	}
	if reply.Card == nil {
		return "", silent("itself")
	}
	taken := map[string]bool{}
	for _, s := range reply.Card.Slots {
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
	return "", &keys.Error{Kind: keys.Busy, Message: fmt.Sprintf("card %d has no free slot", c.serial), Hint: "name one to reuse: --slot 9a --overwrite"}
}

// made checks what the card says of the key that it made.
func (p *PIV) made(c card, t keys.Template, request wire.Request, reply *wire.Reply) (keys.Material, error) {
	if reply.Slot == nil {
		return keys.Material{}, silent("the key that it made")
	}
	k := &key{public: reply.Slot.Public, record: record{
		Serial: c.serial, Slot: request.Slot, PINPolicy: request.PINPolicy, TouchPolicy: request.TouchPolicy,
		Firmware: c.firmware, Attestation: reply.Attestation,
	}}
	if err := k.sound(*reply.Slot); err != nil {
		return keys.Material{}, err
	}
	if k.algorithm != t.Algorithm || k.bits != request.RSABits {
		return keys.Material{}, &keys.Error{Kind: keys.KeyMismatch, Message: "the card made another kind of key than it was asked for"}
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
