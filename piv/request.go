package piv

import (
	"bytes"
	"fmt"
	"slices"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/attestation"
	"holdfast/piv/wire"
)

// asked returns the request for t, without a slot when t names none. It fails when t
// is not valid.
func asked(t keys.Template) (wire.Request, error) {
	request := wire.Request{
		Op: wire.Generate, Attest: true, Slot: t.Card.Slot, PINPolicy: t.Card.PINPolicy, TouchPolicy: t.Card.TouchPolicy,
		Algorithm: string(t.Algorithm), RSABits: t.RSABits, Overwrite: t.Card.Overwrite,
		ManagementKey: t.Card.ManagementKey,
	}
	if _, err := keys.SchemeFor(t.Algorithm, t.Purpose); err != nil {
		return request, err
	}
	if t.Algorithm == keys.RS256 && t.RSABits == 0 {
		request.RSABits = 2048
	}
	if !slices.Contains(capabilities("5.7.0"), keys.Capability{Algorithm: t.Algorithm, RSABits: request.RSABits}) {
		return request, &fault.Error{Kind: fault.Unsupported, Message: fmt.Sprintf("no card makes %s keys of %d bits", t.Algorithm, t.RSABits), Hint: "use --algorithm ES256"}
	}
	var err error
	if request.PIN, err = cardPIN(t); err != nil {
		return request, err
	}
	if t.Card.Slot != "" {
		if _, err := keys.ParseSlot(t.Card.Slot); err != nil {
			return request, err
		}
	}
	return request, askedPolicies(t, &request)
}

// cardPIN returns the card's PIN from either of its two places in the template, or
// nil.
func cardPIN(t keys.Template) ([]byte, error) {
	for _, pin := range [][]byte{t.PIN, t.Card.PIN} {
		if len(pin) > 0 {
			if err := keys.CheckCardPIN(pin); err != nil {
				return nil, err
			}
		}
	}
	if len(t.PIN) > 0 && len(t.Card.PIN) > 0 && !bytes.Equal(t.PIN, t.Card.PIN) {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: "all keys of a card have the card's PIN, and two different ones were given"}
	}
	if len(t.Card.PIN) > 0 {
		return t.Card.PIN, nil
	}
	return t.PIN, nil
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
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("policies %.20q and %.20q are not known", request.PINPolicy, request.TouchPolicy),
			Hint: "PIN: never, once, always; touch: never, always, cached"}
	}
	if request.PINPolicy == keys.PolicyNever && len(t.PIN) > 0 {
		return &fault.Error{Kind: fault.BadRequest, Message: "the request has a PIN, and a PIN policy that never requires one"}
	}
	return nil
}

// able rejects keys that a card with this firmware cannot make, or makes badly.
func able(firmware string, a keys.Algorithm, bits int) error {
	if !slices.Contains(capabilities(firmware), keys.Capability{Algorithm: a, RSABits: bits}) {
		return &fault.Error{Kind: fault.Unsupported, Message: fmt.Sprintf("a card with firmware %s makes no %s keys of %d bits", firmware, a, bits),
			Hint: "use --algorithm ES256"}
	}
	return weak(firmware, a)
}

// weak rejects the weak keys of a firmware.
func weak(firmware string, a keys.Algorithm) error {
	for _, note := range attestation.Warnings(firmware, a) {
		if note.Weak {
			return &fault.Error{Kind: fault.Unsupported, Message: note.Message, Hint: note.Hint}
		}
	}
	return nil
}

// capabilities returns the kinds of key that cards with a firmware make.
func capabilities(firmware string) []keys.Capability {
	can := []keys.Capability{{Algorithm: keys.ES256}, {Algorithm: keys.ES384}, {Algorithm: keys.RS256, RSABits: 2048}}
	version, err := attestation.ParseFirmware(firmware)
	if err == nil && !version.Less(attestation.Firmware{Major: 5, Minor: 7}) {
		can = append(can, keys.Capability{Algorithm: keys.RS256, RSABits: 3072}, keys.Capability{Algorithm: keys.RS256, RSABits: 4096})
	}
	return can
}
