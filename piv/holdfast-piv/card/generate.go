package card

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"fmt"

	"github.com/go-piv/piv-go/v2/piv"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
)

// generate makes a key in a slot, and returns the card's description of it.
func (s *Session) generate(r *wire.Request, reply *wire.Reply) error {
	slot, err := slotOf(r.Slot)
	if err != nil {
		return err
	}
	options, err := s.options(r)
	if err != nil {
		return err
	}
	if err := s.vacant(slot, r.Overwrite); err != nil {
		return err
	}
	if err := s.factoryRefused(r); err != nil {
		return err
	}
	management, err := s.managementKey(r.ManagementKey, r.PIN, s.verify)
	if err != nil {
		return err
	}
	defer clear(management)
	var before *keys.CardSlot
	if r.Overwrite {
		before, _ = s.key(slot) // one of an unknown kind may be overwritten, too
	}
	delete(s.proven, r.Slot)
	public, err := s.yk.GenerateKey(management, slot, options)
	if err != nil {
		return s.ungenerated(slot, before, err)
	}
	s.left = r.Slot
	if err := s.made(slot, public, reply); err != nil {
		return err
	}
	s.left = ""
	return nil
}

// ungenerated adds to the error of a key that was not made what has become of the slot: the
// card may have removed the previous key, or made the new one.
func (s *Session) ungenerated(slot piv.Slot, before *keys.CardSlot, err error) error {
	now, unread := s.key(slot)
	if unread != nil || sameSlot(before, now) {
		return err
	}
	if now != nil {
		s.left = slot.String()
		return err
	}
	serial := s.serial // fault may end the connection
	e := *wire.FromError(s.fault(err))
	e.Message += fmt.Sprintf("; the key that was in slot %v of card %d is gone", slot, serial)
	return &e
}

func sameSlot(a, b *keys.CardSlot) bool {
	if a == nil || b == nil {
		return a == b
	}
	return bytes.Equal(a.Public, b.Public)
}

// options checks that the firmware supports the request.
func (s *Session) options(r *wire.Request) (piv.Key, error) {
	algorithm, ok := map[string]piv.Algorithm{
		"ES256/0": piv.AlgorithmEC256, "ES384/0": piv.AlgorithmEC384, "RS256/0": piv.AlgorithmRSA2048,
		"RS256/2048": piv.AlgorithmRSA2048, "RS256/3072": piv.AlgorithmRSA3072, "RS256/4096": piv.AlgorithmRSA4096,
	}[fmt.Sprintf("%s/%d", r.Algorithm, r.RSABits)]
	key := piv.Key{Algorithm: algorithm, PINPolicy: theirs(pinPolicies, r.PINPolicy), TouchPolicy: theirs(touchPolicies, r.TouchPolicy)}
	if !ok || key.PINPolicy == 0 || key.TouchPolicy == 0 {
		return key, &fault.Error{Kind: fault.BadRequest, Message: "no card makes such a key",
			Hint: "ES256, ES384, or RS256 with 2048, 3072 or 4096 bits; PIN never, once or always; touch never, always or cached"}
	}
	large := algorithm == piv.AlgorithmRSA3072 || algorithm == piv.AlgorithmRSA4096
	switch {
	case !s.since(4, 0, 0), key.TouchPolicy == piv.TouchPolicyCached && !s.since(4, 3, 0):
		return key, s.tooOld("cannot make a key with these policies")
	case large && !s.since(5, 7, 0):
		return key, s.tooOld("makes RSA keys of 2048 bits alone")
	case r.Algorithm == string(keys.RS256) && s.since(4, 2, 6) && !s.since(4, 3, 5):
		return key, s.tooOld("makes RSA keys that can be broken (ROCA, CVE-2017-15361)")
	}
	return key, nil
}

func (s *Session) tooOld(does string) error {
	return &fault.Error{Kind: fault.Unsupported, Message: fmt.Sprintf("card %d has firmware %s, which %s", s.serial, s.version(), does), Hint: "--algorithm ES256"}
}

// theirs returns piv-go's constant for a policy, 0 for none.
func theirs[P piv.PINPolicy | piv.TouchPolicy](ours map[P]keys.Policy, wanted keys.Policy) P {
	for policy, name := range ours {
		if name == wanted {
			return policy
		}
	}
	return 0
}

// vacant rejects a slot that is not empty, unless overwrite is set.
func (s *Session) vacant(slot piv.Slot, overwrite bool) error {
	if overwrite {
		return nil
	}
	found, err := s.look(slot)
	if err != nil {
		return err
	}
	if found == nil && s.since(5, 3, 0) {
		return nil
	}
	if found == nil { // an imported key without a certificate is not visible
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("card %d, of firmware %s, cannot tell whether slot %v is empty", s.serial, s.version(), slot),
			Hint: "--overwrite destroys what is there"}
	}
	what := "a key"
	if found.Generated == nil {
		what = "a certificate"
	}
	return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("in slot %v of card %d is %s", slot, s.serial, what), Hint: "choose another slot; --overwrite destroys what is there"}
}

// made completes the reply with the card's own description of the new key, and
// removes the certificate of the previous key.
func (s *Session) made(slot piv.Slot, public crypto.PublicKey, reply *wire.Reply) error {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return err
	}
	old, err := s.certificateIn(slot)
	if err != nil {
		return err
	}
	if old != nil {
		if err := put(s.raw, slot.Object, nil); err != nil {
			return err
		}
	}
	if reply.Attestation, err = s.attestation(slot); err != nil {
		return err
	}
	if len(reply.Attestation) > 0 {
		err = sameKey(reply.Attestation[0], der)
	}
	if err != nil {
		return err
	}
	reply.Slot, err = s.look(slot)
	if err != nil {
		return err
	}
	if reply.Slot == nil { // old firmware describes no keys
		generated := true
		reply.Slot = &keys.CardSlot{Slot: slot.String(), Generated: &generated}
		describe(reply.Slot, public)
	}
	if !bytes.Equal(reply.Slot.Public, der) {
		return errOtherKey
	}
	s.proven[slot.String()] = der
	return nil
}

var errOtherKey = &fault.Error{Kind: fault.KeyMismatch, Message: "the card's descriptions of the new key differ"}

func sameKey(attestation, public []byte) error {
	certificate, err := x509.ParseCertificate(attestation)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(certificate.PublicKey)
	if err != nil || !bytes.Equal(der, public) {
		return errOtherKey
	}
	return nil
}
