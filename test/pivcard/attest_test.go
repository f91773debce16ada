package pivcard

import (
	"crypto/ecdsa"
	"crypto/x509"
	"testing"
	"time"
)

// attested asks for a statement about a slot and reads it.
func attested(t *testing.T, s *session, slot byte) *x509.Certificate {
	t.Helper()
	cert, err := x509.ParseCertificate(s.want(ok, Attest, slot, 0))
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// chain verifies a statement up to root, through the card's own certificate and
// others.
func chain(c *Card, statement, root *x509.Certificate, others ...*x509.Certificate) error {
	device, err := x509.ParseCertificate(certificateIn(c.Object(ObjectAttestation)))
	if err != nil {
		return err
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(root)
	for _, cert := range append(others, device) {
		between.AddCert(cert)
	}
	_, err = statement.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

func extensionOf(cert *x509.Certificate, n int) string {
	for _, e := range cert.Extensions {
		if e.Id.Equal(extension(n)) {
			return string(e.Value)
		}
	}
	return ""
}

func TestAttest(t *testing.T) {
	maker := NewAuthority("maker")
	c := NewCard(Options{Serial: 0x123456, Maker: maker})
	s := direct(t, c)
	s.want(wrongData, Attest, 0x9c, 0)
	s.want(wrongData, Attest, SlotAttestation, 0)
	public := c.SetKey(0x9c, Key{Algorithm: P384, PIN: PINAlways, Touch: TouchCached})
	cert := attested(t, s, 0x9c)
	if err := chain(c, cert, maker.Certificate); err != nil {
		t.Error(err)
	}
	if err := chain(c, cert, NewAuthority("maker").Certificate); err == nil {
		t.Error("another maker of the same name is believed")
	}
	if want := "YubiKey PIV Attestation 9c"; cert.Subject.CommonName != want {
		t.Errorf("subject %q, want %q", cert.Subject.CommonName, want)
	}
	if !public.(*ecdsa.PublicKey).Equal(cert.PublicKey) {
		t.Error("it is about another key")
	}
	for n, want := range map[int]string{3: "\x05\x04\x03", 7: "\x02\x03\x12\x34\x56", 8: "\x03\x03", 9: "\x03"} {
		if got := extensionOf(cert, n); got != want {
			t.Errorf("extension %d: %x, want %x", n, got, want)
		}
	}
	c.SetObject(ObjectAttestation, nil)
	s.want(noReference, Attest, 0x9c, 0)
}

func TestIntermediate(t *testing.T) {
	root := NewAuthority("root")
	between := root.Intermediate("between")
	c := NewCard(Options{Maker: between})
	c.SetKey(0x9a, Key{Algorithm: P256})
	cert := attested(t, direct(t, c), 0x9a)
	if err := chain(c, cert, root.Certificate, between.Certificate); err != nil {
		t.Error(err)
	}
	if err := chain(c, cert, root.Certificate); err == nil {
		t.Error("the chain verifies without its middle")
	}
}

// TestForge lets the card lie about each thing.
func TestForge(t *testing.T) {
	c := NewCard(Options{})
	c.SetKey(0x9a, Key{Algorithm: P256})
	s := direct(t, c)
	other := newKey(P256).Public()
	c.Forge(func(s *Statement) {
		s.Slot, s.Public, s.Serial, s.Firmware = 0x9c, other, 7, Firmware{9, 9, 9}
		s.PIN, s.Touch, s.NotAfter = PINNever, TouchAlways, time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	})
	cert := attested(t, s, 0x9a)
	if !other.(*ecdsa.PublicKey).Equal(cert.PublicKey) {
		t.Error("it is about the key in the slot")
	}
	if cert.Subject.CommonName != "YubiKey PIV Attestation 9c" || cert.NotAfter.Year() != 2020 || extensionOf(cert, 3) != "\x09\x09\x09" ||
		extensionOf(cert, 7) != "\x02\x01\x07" || extensionOf(cert, 8) != "\x01\x02" {
		t.Errorf("the statement is %s until %v with %+v", cert.Subject, cert.NotAfter, cert.Extensions)
	}
	c.Forge(nil)
	if got := attested(t, s, 0x9a).Subject.CommonName; got != "YubiKey PIV Attestation 9a" {
		t.Errorf("an honest card attests %q", got)
	}
}
