package piv

import (
	"bytes"
	"crypto/rsa"
	"fmt"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/attestation"
)

// sound checks a key by itself, and that the slot agrees with its record.
func (k *key) sound(s keys.CardSlot) error {
	public, err := keys.ParsePublic(k.public)
	if err != nil {
		return &fault.Error{Kind: fault.KeyMismatch, Message: "the card shows no public key that can be used", Err: err}
	}
	if k.algorithm, k.bits, err = keys.AlgorithmOf(public); err != nil {
		return err
	}
	if key, ok := public.(*rsa.PublicKey); ok && keys.ROCA(key.N) {
		return &fault.Error{Kind: fault.Unsupported, Message: "the card's RSA key has the ROCA weakness", Hint: "use --algorithm ES256"}
	}
	return k.agrees(s)
}

// agrees compares the slot, as far as the card reports it, with the record.
func (k *key) agrees(s keys.CardSlot) error {
	switch {
	case s.Public != nil && !bytes.Equal(s.Public, k.public):
		return &fault.Error{Kind: fault.KeyMismatch, Message: fmt.Sprintf("in slot %s of card %d is another key", k.Slot, k.Serial)}
	case s.PINPolicy != "" && s.PINPolicy != k.PINPolicy:
		return &fault.Error{Kind: fault.KeyMismatch, Message: fmt.Sprintf("the key's PIN policy is %s, not %s", s.PINPolicy, k.PINPolicy)}
	case s.TouchPolicy != "" && s.TouchPolicy != k.TouchPolicy:
		return &fault.Error{Kind: fault.KeyMismatch, Message: fmt.Sprintf("the key's touch policy is %s, not %s", s.TouchPolicy, k.TouchPolicy)}
	}
	return nil
}

// proven returns an error unless there is a valid statement of the card about k.
func (k *key) proven(roots attestation.Roots) error {
	if len(k.Attestation) != 2 {
		return unproven(k.Serial)
	}
	return k.attested(roots)
}

// unproven is the error for a card without a statement about its keys, to the caller that
// makes one.
func unproven(serial uint32) *fault.Error {
	return &fault.Error{Kind: fault.Unsupported, Message: fmt.Sprintf("card %d does not prove that it made the key", serial),
		Hint: "take the key as it is with --allow-unattested, or use a YubiKey with firmware 4.3 or newer"}
}

// unprovenAdopted is the same to a caller that adopts one.
func unprovenAdopted(serial uint32) *fault.Error {
	e := unproven(serial)
	e.Hint = "adopt the key as one that may exist elsewhere, too, with --allow-imported"
	return e
}
