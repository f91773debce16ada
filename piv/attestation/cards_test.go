package attestation_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"sync"
	"testing"
	"time"

	"holdfast/internal/keys"
	"holdfast/piv/attestation"
)

// An issuer is a certificate and its key.
type issuer struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func (i *issuer) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw})
}

// issue makes an authority, below parent or, when that is nil, on its own.
func issue(t testing.TB, name string, parent *issuer, key crypto.Signer, change func(*x509.Certificate)) *issuer {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true, IsCA: true,
	}
	if change != nil {
		change(template)
	}
	if parent == nil {
		parent = &issuer{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, key.Public(), parent.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{cert, key}
}

func ecKey(t testing.TB, curve elliptic.Curve) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// rsaKey is made once: it takes long.
var rsaKey = sync.OnceValue(func() crypto.Signer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// arc is where Yubico's extensions are.
func arc(n int) asn1.ObjectIdentifier { return asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 41482, 3, n} }

// A card is a YubiKey with one key, before it has stated anything about it.
type card struct {
	f9         *issuer
	key        crypto.PublicKey
	subject    pkix.Name
	extensions []pkix.Extension
	from, to   time.Time
}

const (
	serial   = 12345678
	firmware = "5.4.3"
)

// newCard makes one whose f9 is made by root, and which holds a key in slot 9a
// that wants the PIN once and a touch always.
func newCard(t testing.TB, root *issuer, f9 crypto.Signer, key crypto.PublicKey, change func(*x509.Certificate)) *card {
	t.Helper()
	number, err := asn1.Marshal(serial)
	if err != nil {
		t.Fatal(err)
	}
	c := &card{
		f9: issue(t, "Yubico PIV Attestation", root, f9, change), key: key,
		subject: pkix.Name{CommonName: "YubiKey PIV Attestation 9a"},
		extensions: []pkix.Extension{
			{Id: arc(3), Value: []byte{5, 4, 3}}, {Id: arc(7), Value: number},
			{Id: arc(8), Value: []byte{2, 2}}, {Id: arc(9), Value: []byte{1}},
		},
	}
	c.from, c.to = c.f9.cert.NotBefore, c.f9.cert.NotAfter
	return c
}

// says replaces the value of one extension, or removes it when nil.
func (c *card) says(n int, value []byte) {
	for i, e := range c.extensions {
		if e.Id.Equal(arc(n)) {
			c.extensions = append(c.extensions[:i:i], c.extensions[i+1:]...)
			break
		}
	}
	if value != nil {
		c.extensions = append(c.extensions, pkix.Extension{Id: arc(n), Value: value})
	}
}

// state makes the statement.
func (c *card) state(t testing.TB) []byte {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: c.subject, NotBefore: c.from, NotAfter: c.to, ExtraExtensions: c.extensions,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.f9.cert, c.key, c.f9.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func spki(t testing.TB, public crypto.PublicKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// A scene is a card, whom the caller trusts, and what it expects.
type scene struct {
	t     testing.TB
	root  *issuer
	card  *card
	roots attestation.Roots
	want  attestation.Expected
	slot  []byte // instead of what card states
	f9    []byte // instead of card.f9
}

// newScene is one in which Verify succeeds.
func newScene(t testing.TB) *scene {
	t.Helper()
	s := &scene{t: t, root: issue(t, "Test Root", nil, ecKey(t, elliptic.P256()), nil)}
	s.card = newCard(t, s.root, ecKey(t, elliptic.P256()), ecKey(t, elliptic.P256()).Public(), nil)
	s.trust(s.root)
	s.want = attestation.Expected{
		Public: spki(t, s.card.key), Serial: serial, Slot: "9a", PINPolicy: keys.PolicyOnce, TouchPolicy: keys.PolicyAlways, Firmware: firmware,
	}
	return s
}

// trust has the caller trust Yubico and one more.
func (s *scene) trust(root *issuer) {
	s.t.Helper()
	var err error
	if s.roots, err = attestation.Genuine().With(root.pem()); err != nil {
		s.t.Fatal(err)
	}
}

// holds puts another key into the card's slot, and expects it.
func (s *scene) holds(key crypto.PublicKey) {
	s.card.key, s.want.Public = key, spki(s.t, key)
}

func (s *scene) verify() (attestation.Statement, error) {
	if s.slot == nil {
		s.slot = s.card.state(s.t)
	}
	if s.f9 == nil {
		s.f9 = s.card.f9.cert.Raw
	}
	return attestation.Verify(s.slot, s.f9, s.roots, s.want)
}
