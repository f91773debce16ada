package pivcard

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"time"
)

// An Authority is a maker of cards: it certifies the key with which a card
// attests, as Yubico does.
type Authority struct {
	Certificate *x509.Certificate
	private     crypto.Signer
}

// NewAuthority makes an authority whose certificate signs itself.
func NewAuthority(name string) *Authority {
	private := newKey(P256)
	template := authorityTemplate(name)
	return &Authority{issue(template, template, private.Public(), private), private}
}

// Intermediate makes an authority that a has certified, as Yubico's are since
// 2024.
func (a *Authority) Intermediate(name string) *Authority {
	private := newKey(P256)
	return &Authority{issue(authorityTemplate(name), a.Certificate, private.Public(), a.private), private}
}

// PEM returns the authority's certificate, for whoever is to trust its cards.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate.Raw})
}

// equip makes a card's attestation key and the object with its certificate.
func (a *Authority) equip(c *Card) (*key, []byte) {
	k := &key{alg: P256, pin: PINNever, touch: TouchNever, private: newKey(P256)}
	template := authorityTemplate("Yubico PIV Attestation")
	template.MaxPathLenZero = true
	cert := issue(template, a.Certificate, k.private.Public(), a.private)
	return k, object(cert.Raw)
}

// object wraps a certificate as a slot's data object.
func object(der []byte) []byte {
	return join(tlv(0x70, der), tlv(0x71, []byte{0}), tlv(0xfe))
}

func authorityTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber:          randomSerial(),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Date(2016, 3, 14, 0, 0, 0, 0, time.UTC),
		NotAfter:              time.Date(2052, 4, 17, 0, 0, 0, 0, time.UTC),
		BasicConstraintsValid: true,
		IsCA:                  true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
}

// issue signs a certificate and reads it back.
func issue(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) *x509.Certificate {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		panic(err) // made from constants and fresh keys
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return cert
}
