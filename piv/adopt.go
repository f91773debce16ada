package piv

import (
	"context"
	"fmt"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
)

// Import adopts the key that is in a slot already: file names card, slot and public
// key, as Export writes it. None of that is secret, so that the template has to hold
// the card's PIN, which is proved. The card has to prove that it made the key, unless
// allowImported. The policies come from the card; a card that cannot report them has
// a YubiKey's defaults.
func (p *PIV) Import(ctx context.Context, t keys.Template, file []byte, allowImported bool) (keys.Material, error) {
	ref, err := parseFile(file)
	if err != nil {
		return keys.Material{}, err
	}
	pin, err := cardPIN(t)
	if err != nil {
		return keys.Material{}, err
	}
	c, err := p.scanner.find(ctx, ref.serial)
	if err != nil {
		return keys.Material{}, err
	}
	if len(pin) == 0 {
		return keys.Material{}, &fault.Error{Kind: fault.PINRequired, Message: fmt.Sprintf("card %d needs its PIN before its key is adopted", c.serial), Hint: "give the card's PIN"}
	}
	reply, _, err := c.worker.ask(ctx, c.serial, wire.Request{Op: wire.Slot, Slot: ref.slot, Attest: true, PIN: pin}, p.proving())
	if err != nil {
		return keys.Material{}, err
	}
	if reply.Slot == nil {
		return keys.Material{}, incomplete("slot " + ref.slot)
	}
	return p.adopted(c, t, ref, reply, allowImported)
}

// adopted checks the card's reply about the key to adopt.
func (p *PIV) adopted(c card, t keys.Template, ref reference, reply *wire.Reply, allowImported bool) (keys.Material, error) {
	k := &key{public: ref.public, record: record{Serial: c.serial, Slot: ref.slot, Firmware: c.firmware, Attestation: reply.Attestation}}
	k.PINPolicy, k.TouchPolicy = policies(*reply.Slot)
	if err := k.sound(*reply.Slot); err != nil {
		return keys.Material{}, err
	}
	if err := k.suits(t); err != nil {
		return keys.Material{}, err
	}
	if err := k.proven(p.config.Roots); err != nil {
		if !allowImported && len(k.Attestation) != 2 {
			return keys.Material{}, unprovenAdopted(k.Serial)
		}
		if !allowImported {
			return keys.Material{}, err
		}
		k.Attestation, k.Imported = nil, true
	}
	return k.material()
}

// policies returns the key's policies, or a YubiKey's defaults.
func policies(s keys.CardSlot) (pin, touch keys.Policy) {
	pin, touch = s.PINPolicy, s.TouchPolicy
	if pin == "" {
		pin = map[string]keys.Policy{"9c": keys.PolicyAlways, "9e": keys.PolicyNever}[s.Slot]
	}
	if pin == "" {
		pin = keys.PolicyOnce
	}
	if touch == "" {
		touch = keys.PolicyNever
	}
	return pin, touch
}

// suits rejects a key that does not fit the template.
func (k *key) suits(t keys.Template) error {
	if t.Algorithm != "" && t.Algorithm != k.algorithm || t.RSABits != 0 && t.RSABits != k.bits {
		return &fault.Error{Kind: fault.BadRequest, Message: "the key in the slot is of algorithm " + string(k.algorithm)}
	}
	if _, err := keys.SchemeFor(k.algorithm, t.Purpose); err != nil {
		return err
	}
	return weak(k.Firmware, k.algorithm)
}

// Check compares the record with the card's statement in it and with the card.
func (p *PIV) Check(ctx context.Context, m keys.Material) error {
	_, err := p.examine(ctx, m)
	return err
}

// TriesLeft implements keys.CardHolder.
func (p *PIV) TriesLeft(ctx context.Context, m keys.Material) (*int, error) {
	reply, err := p.examine(ctx, m)
	if err != nil {
		return nil, err
	}
	return reply.Tries, nil
}

// examine reads m's slot and checks that it holds m.
func (p *PIV) examine(ctx context.Context, m keys.Material) (*wire.Reply, error) {
	k, err := parse(m)
	if err != nil {
		return nil, err
	}
	if err := k.attested(p.config.Roots); err != nil {
		return nil, err
	}
	c, err := p.scanner.find(ctx, k.Serial)
	if err != nil {
		return nil, err
	}
	reply, _, err := c.worker.ask(ctx, k.Serial, wire.Request{Op: wire.Slot, Slot: k.Slot}, p.reading())
	if err != nil {
		return nil, err
	}
	switch {
	case reply.Slot == nil || reply.Slot.Public == nil:
		return nil, incomplete("the key in slot " + k.Slot)
	case c.firmware != k.Firmware:
		return nil, &fault.Error{Kind: fault.KeyMismatch, Message: "the card has firmware " + c.firmware + ", and the key is from one with " + k.Firmware}
	}
	return reply, k.agrees(*reply.Slot)
}

// Persist does nothing: a card's keys are always persistent.
func (p *PIV) Persist(_ context.Context, m keys.Material) error {
	_, err := parse(m)
	return err
}

// Delete locks the key and leaves it in its slot: cards before firmware 5.7 cannot
// remove one, and later ones need their management key for it.
func (p *PIV) Delete(_ context.Context, m keys.Material) error {
	if _, err := parse(m); err != nil {
		return err
	}
	p.Lock(&m)
	return nil
}
