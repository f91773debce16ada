package piv

import (
	"bytes"
	"context"
	"crypto/rsa"
	"fmt"
	"slices"

	"holdfast/agent/keys"
	"holdfast/piv/attestation"
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
	if err := able(c.firmware, t); err != nil {
		return keys.Material{}, err
	}
	reply, _, err := c.worker.ask(ctx, c.serial, wire.Request{Op: wire.Inspect}, p.brief())
	if err != nil {
		return keys.Material{}, err
	}
	if reply.Card == nil {
		return keys.Material{}, silent("itself")
	}
	if err := ready(*reply.Card, c.serial); err != nil {
		return keys.Material{}, err
	}
	if request.Slot, err = chooseSlot(t.Card, *reply.Card); err != nil {
		return keys.Material{}, err
	}
	limits := p.config.limits
	reply, _, err = c.worker.ask(ctx, c.serial, request, patience{limit: limits.generate, grace: limits.grace})
	if err != nil {
		return keys.Material{}, err
	}
	return p.made(c, t, request, reply)
}

// silent is the error of a reply in which something is missing.
func silent(what string) error {
	return &keys.Error{Kind: keys.DeviceFailed, Message: "the card says nothing of " + what}
}

// asked is the request for t, but for the slot where t leaves it open, or what
// is wrong with t.
func asked(t keys.Template) (wire.Request, error) {
	request := wire.Request{
		Op: wire.Generate, Attest: true, Slot: t.Card.Slot, PINPolicy: t.Card.PINPolicy, TouchPolicy: t.Card.TouchPolicy,
		Algorithm: string(t.Algorithm), RSABits: t.RSABits, Overwrite: t.Card.Overwrite,
		PIN: t.Card.PIN, ManagementKey: t.Card.ManagementKey,
	}
	if _, err := keys.SchemeFor(t.Algorithm, t.Purpose); err != nil {
		return request, err
	}
	if t.Algorithm == keys.RS256 && t.RSABits == 0 {
		request.RSABits = 2048
	}
	if !slices.Contains(capabilities("5.7.0"), keys.Capability{Algorithm: t.Algorithm, RSABits: request.RSABits}) {
		return request, &keys.Error{Kind: keys.Unsupported, Message: fmt.Sprintf("no card makes %s keys of %d bits", t.Algorithm, t.RSABits), Hint: "use --algorithm ES256"}
	}
	if err := askedPIN(t, &request); err != nil {
		return request, err
	}
	if t.Card.Slot != "" {
		if _, err := keys.ParseSlot(t.Card.Slot); err != nil {
			return request, err
		}
	}
	return request, askedPolicies(t, &request)
}

// askedPIN fills in the card's PIN, which the template may hold in two places.
func askedPIN(t keys.Template, request *wire.Request) error {
	for _, pin := range [][]byte{t.PIN, t.Card.PIN} {
		if len(pin) > 0 {
			if err := keys.CheckCardPIN(pin); err != nil {
				return err
			}
		}
	}
	if len(t.PIN) > 0 && len(t.Card.PIN) > 0 && !bytes.Equal(t.PIN, t.Card.PIN) {
		return &keys.Error{Kind: keys.BadRequest, Message: "all keys of a card have the card's PIN, and two different ones were given"}
	}
	if len(t.Card.PIN) == 0 {
		request.PIN = t.PIN
	}
	return nil
}

// askedPolicies fills in the policies.
func askedPolicies(t keys.Template, request *wire.Request) error {
	if request.PINPolicy == "" {
		request.PINPolicy = keys.PolicyNever
		if len(t.PIN) > 0 {
			request.PINPolicy = keys.PolicyOnce
		}
	}
	if request.TouchPolicy == "" {
		request.TouchPolicy = keys.PolicyNever
	}
	if !slices.Contains(keys.PINPolicies(), request.PINPolicy) || !slices.Contains(keys.TouchPolicies(), request.TouchPolicy) {
		return &keys.Error{Kind: keys.BadRequest, Message: fmt.Sprintf("policies %.20q and %.20q are not known", request.PINPolicy, request.TouchPolicy),
			Hint: "PIN: never, once, always; touch: never, always, cached"}
	}
	if request.PINPolicy == keys.PolicyNever && len(t.PIN) > 0 {
		return &keys.Error{Kind: keys.BadRequest, Message: "a key with a PIN was asked for, and a policy that never wants one"}
	}
	return nil
}

// able refuses what a card with this firmware cannot make, or not well.
func able(firmware string, t keys.Template) error {
	for _, note := range attestation.Warnings(firmware, t.Algorithm) {
		if note.Weak {
			return &keys.Error{Kind: keys.Unsupported, Message: note.Message, Hint: note.Hint}
		}
	}
	bits := t.RSABits
	if t.Algorithm == keys.RS256 && bits == 0 {
		bits = 2048
	}
	if !slices.Contains(capabilities(firmware), keys.Capability{Algorithm: t.Algorithm, RSABits: bits}) {
		return &keys.Error{Kind: keys.Unsupported, Message: fmt.Sprintf("a card with firmware %s makes no %s keys of %d bits", firmware, t.Algorithm, bits),
			Hint: "use --algorithm ES256"}
	}
	return nil
}

// capabilities are the kinds of key that cards with a firmware make.
func capabilities(firmware string) []keys.Capability {
	can := []keys.Capability{{Algorithm: keys.ES256}, {Algorithm: keys.ES384}, {Algorithm: keys.RS256, RSABits: 2048}}
	version, err := attestation.ParseFirmware(firmware)
	if err == nil && !version.Less(attestation.Firmware{Major: 5, Minor: 7}) {
		can = append(can, keys.Capability{Algorithm: keys.RS256, RSABits: 3072}, keys.Capability{Algorithm: keys.RS256, RSABits: 4096})
	}
	return can
}

// ready refuses a card whose secrets everybody knows.
func ready(c keys.Card, serial uint32) error {
	for _, secret := range []struct {
		name     string
		default_ *bool
	}{{"PIN", c.DefaultPIN}, {"PUK", c.DefaultPUK}, {"management key", c.DefaultManagement}} {
		if secret.default_ != nil && *secret.default_ {
			return &keys.Error{Kind: keys.BadRequest, Message: fmt.Sprintf("card %d still has the factory's %s, which everybody knows", serial, secret.name),
				Hint: fmt.Sprintf("holdfast piv setup --card %d", serial)}
		}
	}
	return nil
}

// chooseSlot returns the slot asked for, or a free one. 9c, 9d and 9e are for
// signatures of documents, decryption and doors: nobody is given them unasked.
func chooseSlot(o keys.OnCard, c keys.Card) (string, error) {
	taken := map[string]bool{}
	for _, s := range c.Slots {
		taken[s.Slot] = true
	}
	if o.Slot != "" {
		if taken[o.Slot] && !o.Overwrite {
			return "", &keys.Error{Kind: keys.BadRequest, Message: fmt.Sprintf("slot %s of card %d is in use", o.Slot, c.Serial),
				Hint: "choose another slot; --overwrite destroys what is there"}
		}
		return o.Slot, nil
	}
	for n := 0x81; n <= 0x95; n++ {
		slot := fmt.Sprintf("%02x", n)
		if n == 0x81 {
			slot = "9a"
		}
		if !taken[slot] {
			return slot, nil
		}
	}
	return "", &keys.Error{Kind: keys.Busy, Message: fmt.Sprintf("card %d has no free slot", c.Serial), Hint: "name one to reuse: --slot 9a --overwrite"}
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

// sound checks a key by itself, and that the card says of it what is recorded.
func (k *key) sound(s keys.CardSlot) error {
	public, err := keys.ParsePublic(k.public)
	if err != nil {
		return &keys.Error{Kind: keys.KeyMismatch, Message: "the card shows no public key that can be used", Err: err}
	}
	if k.algorithm, k.bits, err = keys.AlgorithmOf(public); err != nil {
		return err
	}
	if key, ok := public.(*rsa.PublicKey); ok && keys.ROCA(key.N) {
		return &keys.Error{Kind: keys.Unsupported, Message: "the card's RSA key has the ROCA weakness", Hint: "use --algorithm ES256"}
	}
	return k.agrees(s)
}

// agrees compares what the card says of the slot, where it can tell, with the
// record.
func (k *key) agrees(s keys.CardSlot) error {
	switch {
	case s.Public != nil && !bytes.Equal(s.Public, k.public):
		return &keys.Error{Kind: keys.KeyMismatch, Message: fmt.Sprintf("in slot %s of card %d is another key", k.Slot, k.Serial)}
	case s.PINPolicy != "" && s.PINPolicy != k.PINPolicy:
		return &keys.Error{Kind: keys.KeyMismatch, Message: fmt.Sprintf("the key's PIN policy is %s, not %s", s.PINPolicy, k.PINPolicy)}
	case s.TouchPolicy != "" && s.TouchPolicy != k.TouchPolicy:
		return &keys.Error{Kind: keys.KeyMismatch, Message: fmt.Sprintf("the key's touch policy is %s, not %s", s.TouchPolicy, k.TouchPolicy)}
	}
	return nil
}

// proven returns an error unless the card's statement about k is there and good.
func (k *key) proven(roots attestation.Roots) error {
	if len(k.Attestation) != 2 {
		return &keys.Error{Kind: keys.Unsupported, Message: fmt.Sprintf("card %d does not prove that it made the key", k.Serial),
			Hint: "take the key as it is with --allow-unattested, or use a YubiKey with firmware 4.3 or newer"}
	}
	return k.attested(roots)
}
