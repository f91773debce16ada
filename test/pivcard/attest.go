package pivcard

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"time"
)

// A Statement is what the card says about a key when it attests.
type Statement struct {
	Slot                byte
	Public              crypto.PublicKey
	Serial              uint32
	Firmware            Firmware
	PIN, Touch          byte // policies, as Yubico encodes them
	NotBefore, NotAfter time.Time
}

// attest is Yubico's ATTEST: a certificate for the key in slot P1, signed with
// the key in f9. There is none for an imported key or an empty slot.
func (c *Card) attest(cmd command) ([]byte, status) {
	k, signer := c.keys[cmd.p1], c.keys[SlotAttestation]
	if k == nil || k.imported || cmd.p1 == SlotAttestation {
		return nil, wrongData
	}
	issuer, err := x509.ParseCertificate(certificateIn(c.objects[ObjectAttestation]))
	if err != nil || signer == nil {
		return nil, noReference
	}
	s := Statement{
		Slot: cmd.p1, Public: k.private.Public(), Serial: c.Serial, Firmware: c.Firmware,
		PIN: k.pin, Touch: k.touch, NotBefore: issuer.NotBefore, NotAfter: issuer.NotAfter,
	}
	if c.forge != nil {
		c.forge(&s)
	}
	der, err := s.sign(issuer, signer.private)
	if err != nil {
		return nil, wrongData
	}
	return der, ok
}

// sign makes the certificate, with Yubico's extensions (PIV attestation,
// developers.yubico.com).
func (s Statement) sign(issuer *x509.Certificate, signer crypto.Signer) ([]byte, error) {
	serial, err := asn1.Marshal(int64(s.Serial))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: randomSerial(),
		Subject:      pkix.Name{CommonName: fmt.Sprintf("YubiKey PIV Attestation %x", s.Slot)},
		NotBefore:    s.NotBefore,
		NotAfter:     s.NotAfter,
		ExtraExtensions: []pkix.Extension{
			{Id: extension(3), Value: s.Firmware.bytes()},
			{Id: extension(7), Value: serial},
			{Id: extension(8), Value: []byte{s.PIN, s.Touch}},
			{Id: extension(9), Value: []byte{formFactor}},
		},
	}
	return x509.CreateCertificate(rand.Reader, template, issuer, s.Public, signer)
}

// extension is one of Yubico's: 1.3.6.1.4.1.41482.3.n.
func extension(n int) asn1.ObjectIdentifier {
	return asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 41482, 3, n}
}

func randomSerial() *big.Int {
	b := make([]byte, 16)
	rand.Read(b)
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b)
}

// certificateIn takes the certificate out of a slot's object (SP 800-73-4 part
// 1, appendix A): nil when there is none.
func certificateIn(object []byte) []byte {
	tag, value, _, err := next(object)
	if err != nil || tag != 0x70 {
		return nil
	}
	return value
}
