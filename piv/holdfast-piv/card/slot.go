package card

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"

	"github.com/go-piv/piv-go/v2/piv"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
)

// slotOf returns piv-go's name for a slot.
func slotOf(name string) (piv.Slot, error) {
	n, err := keys.ParseSlot(name)
	if err != nil {
		return piv.Slot{}, err
	}
	for _, slot := range []piv.Slot{piv.SlotAuthentication, piv.SlotSignature, piv.SlotKeyManagement, piv.SlotCardAuthentication} {
		if slot.Key == uint32(n) {
			return slot, nil
		}
	}
	slot, _ := piv.RetiredKeyManagementSlot(uint32(n))
	return slot, nil
}

// slot replies with the content of one slot and the PIN tries left. It proves a PIN
// in the request first and does not keep it.
func (s *Session) slot(r *wire.Request, reply *wire.Reply) error {
	if len(r.PIN) > 0 {
		if err := s.verify(r.PIN); err != nil {
			return err
		}
	}
	var err error
	if reply.Tries, err = s.tries(refPIN); err != nil || r.Slot == "" {
		return err
	}
	slot, err := slotOf(r.Slot)
	if err != nil {
		return err
	}
	found, err := s.look(slot)
	if err != nil {
		return err
	}
	if found == nil {
		return s.empty(slot)
	}
	reply.Slot = found
	if found.Public != nil {
		s.proven[r.Slot] = found.Public
	}
	if r.Attest {
		reply.Attestation, err = s.attestation(slot)
	}
	return err
}

func (s *Session) empty(slot piv.Slot) error {
	return &fault.Error{Kind: fault.KeyLost, Message: fmt.Sprintf("there is no key in slot %v of card %d", slot, s.serial)}
}

// look returns the content of the slot, or nil when it is empty. Before firmware 5.3
// an imported key without a certificate is not visible.
func (s *Session) look(slot piv.Slot) (*keys.CardSlot, error) {
	found := &keys.CardSlot{Slot: slot.String()}
	certificate, err := s.certificateIn(slot)
	if err != nil {
		return nil, err
	}
	read := s.attested
	if s.since(5, 3, 0) {
		read = s.described
	}
	public, err := read(slot, found)
	if err != nil {
		return nil, err
	}
	if certificate != nil {
		found.Certificate = certificate.Raw
		if public == nil && !s.since(5, 3, 0) {
			public = certificate.PublicKey
		}
	}
	if public == nil && certificate == nil {
		return nil, nil
	}
	describe(found, public)
	return found, nil
}

// key returns the description of the slot's key, or nil when there is none. It reads
// the certificate only where that adds something.
func (s *Session) key(slot piv.Slot) (*keys.CardSlot, error) {
	if !s.since(5, 3, 0) {
		return s.look(slot)
	}
	found := &keys.CardSlot{Slot: slot.String()}
	public, err := s.described(slot, found)
	if err != nil || public == nil {
		return nil, err
	}
	describe(found, public)
	return found, nil
}

// describe fills in the members that follow from the public key, if holdfast supports
// its kind.
func describe(found *keys.CardSlot, public crypto.PublicKey) {
	algorithm, bits, err := keys.AlgorithmOf(public)
	if err != nil {
		return
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return
	}
	found.Algorithm, found.RSABits, found.Public = algorithm, bits, der
}

// described reads the slot's metadata. It returns nil when there is no key.
func (s *Session) described(slot piv.Slot, found *keys.CardSlot) (crypto.PublicKey, error) {
	info, err := s.yk.KeyInfo(slot)
	if errors.Is(err, piv.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	generated := info.Origin == piv.OriginGenerated
	found.Generated = &generated
	found.PINPolicy, found.TouchPolicy = pinPolicies[info.PINPolicy], touchPolicies[info.TouchPolicy]
	if info.PublicKey == nil {
		return nil, errors.New("metadata without a public key")
	}
	return info.PublicKey, nil
}

var (
	pinPolicies   = map[piv.PINPolicy]keys.Policy{piv.PINPolicyNever: keys.PolicyNever, piv.PINPolicyOnce: keys.PolicyOnce, piv.PINPolicyAlways: keys.PolicyAlways}
	touchPolicies = map[piv.TouchPolicy]keys.Policy{piv.TouchPolicyNever: keys.PolicyNever, piv.TouchPolicyAlways: keys.PolicyAlways, piv.TouchPolicyCached: keys.PolicyCached}
)

// policyOID marks the extension with a key's policies
// (developers.yubico.com/PIV/Introduction/PIV_attestation.html).
var policyOID = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 41482, 3, 8}

// attested reads the slot's attestation, which only keys made in the card have. It
// returns nil when there is no such key.
func (s *Session) attested(slot piv.Slot, found *keys.CardSlot) (crypto.PublicKey, error) {
	if !s.since(4, 3, 0) {
		return nil, nil
	}
	certificate, err := s.yk.Attest(slot)
	if err != nil {
		return nil, s.unlessUnproven(err)
	}
	generated := true
	found.Generated = &generated
	for _, e := range certificate.Extensions {
		if e.Id.Equal(policyOID) && len(e.Value) == 2 {
			found.PINPolicy, found.TouchPolicy = pinPolicies[piv.PINPolicy(e.Value[0])], touchPolicies[piv.TouchPolicy(e.Value[1])]
		}
	}
	return certificate.PublicKey, nil
}

// certificateIn returns the certificate in the slot, or nil when there is none that
// x509 can parse.
func (s *Session) certificateIn(slot piv.Slot) (*x509.Certificate, error) {
	certificate, err := s.yk.Certificate(slot)
	if err == nil {
		return certificate, nil
	}
	if _, failed := codeOf(err); failed {
		return nil, err
	}
	return nil, nil
}

// attestation returns the slot's attestation certificate and the one that it is
// signed by, or nothing when the card, or this key, has none.
func (s *Session) attestation(slot piv.Slot) ([][]byte, error) {
	if !s.since(4, 3, 0) {
		return nil, nil
	}
	of, err := s.yk.Attest(slot)
	if err == nil {
		var by *x509.Certificate
		if by, err = s.yk.AttestationCertificate(); err == nil {
			return [][]byte{of.Raw, by.Raw}, nil
		}
	}
	return nil, s.unlessUnproven(err)
}

// unlessUnproven returns the error of an attestation only when the connection has failed. A
// card that refuses to attest, or sends what is no certificate, proves nothing.
func (s *Session) unlessUnproven(err error) error {
	if _, failed := codeOf(err); failed || s.raw.State() != nil {
		return err
	}
	return nil
}

// prove checks, once on each connection, that the key in the slot has this
// SubjectPublicKeyInfo.
func (s *Session) prove(name string, public []byte) error {
	slot, err := slotOf(name)
	if err != nil || len(public) > 0 && bytes.Equal(s.proven[name], public) {
		return err
	}
	found, err := s.key(slot)
	if err != nil {
		return err
	}
	switch {
	case found == nil:
		return s.empty(slot)
	case len(public) == 0 || !bytes.Equal(found.Public, public):
		return &fault.Error{Kind: fault.KeyMismatch, Message: fmt.Sprintf("in slot %v of card %d is another key", slot, s.serial)}
	}
	s.proven[name] = found.Public
	return nil
}
