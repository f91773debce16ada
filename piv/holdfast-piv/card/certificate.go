package card

import (
	"bytes"
	"crypto/x509"
	"fmt"

	"holdfast/internal/fault"
	"holdfast/piv/holdfast-piv/vault"
	"holdfast/piv/wire"
)

// certificate puts a certificate of the key's into its slot. Without a PIN in the
// request the key must be unlocked.
func (s *Session) certificate(r *wire.Request, _ *wire.Reply) error {
	slot, err := slotOf(r.Slot)
	if err != nil {
		return err
	}
	if err := suits(r); err != nil {
		return err
	}
	if err := s.prove(r.Slot, r.Public); err != nil {
		return err
	}
	pin, open := r.PIN, s.verify
	if len(pin) == 0 {
		pin, open = s.vault.Get(vault.KeyOf(r.Slot, r.Public)), s.reopen
		defer clear(pin)
	}
	management, err := s.managementKey(r.ManagementKey, pin, open)
	if err != nil {
		return err
	}
	clear(management) // the card has accepted it
	return put(s.raw, slot.Object, certificateObject(r.Certificate))
}

// maxCertificate is more than any card takes in one object.
const maxCertificate = 8 << 10

// suits rejects a certificate that is not valid or is for another key.
func suits(r *wire.Request) error {
	if len(r.Certificate) > maxCertificate {
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("a certificate of %d bytes does not fit on a card", len(r.Certificate))}
	}
	leaf, err := x509.ParseCertificate(r.Certificate)
	if err != nil {
		return &fault.Error{Kind: fault.BadRequest, Message: "the certificate: " + err.Error()}
	}
	der, err := x509.MarshalPKIXPublicKey(leaf.PublicKey)
	if err != nil || !bytes.Equal(der, r.Public) {
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("the certificate is for another key than that in slot %s", r.Slot)}
	}
	return nil
}

// certificateObject lays out a certificate as it is, not compressed (NIST SP
// 800-73-4 part 1, appendix A, table 10).
func certificateObject(der []byte) []byte {
	return append(append(tlv(0x70, der), tlv(0x71, []byte{0})...), tlv(0xfe, nil)...)
}

// reopen proves a PIN that was right before, unless it was proved on this connection.
func (s *Session) reopen(pin []byte) error {
	switch {
	case s.verified:
		return nil
	case s.counted:
		return s.login(pin)
	}
	return s.verify(pin) // another program may have changed the PIN meanwhile
}
