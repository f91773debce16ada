package attestation_test

import (
	"bytes"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"testing"

	"holdfast/internal/fault"
	"holdfast/piv/attestation"
)

// Roots of one's own come on top of those before, and change nothing in them.
func TestWith(t *testing.T) {
	s := newScene(t)
	other := issue(t, "Other Root", nil, ecKey(t, elliptic.P256()), nil)
	before := attestation.Genuine()
	both, err := before.With(append(append([]byte("what these are for\n"), s.root.pem()...), other.pem()...))
	if err != nil {
		t.Fatal(err)
	}
	for _, sample := range samples() {
		slot, f9, want := sample.read(t)
		if _, err := attestation.Verify(slot, f9, both, want); err != nil {
			t.Errorf("%s is no longer trusted: %v", sample.file, err)
		}
	}
	for _, root := range []*issuer{s.root, other} {
		s.slot, s.f9, s.roots = nil, nil, both
		s.card = newCard(t, root, ecKey(t, elliptic.P256()), s.card.key, nil)
		if _, err := s.verify(); err != nil {
			t.Errorf("%s: %v", root.cert.Subject, err)
		}
	}
	s.roots = before
	if _, err := s.verify(); !errors.Is(err, attestation.ErrNotGenuine) {
		t.Errorf("the roots before have changed: got %v", err)
	}
}

// An administrator may trust other roots and not Yubico's.
func TestWithoutYubico(t *testing.T) {
	s := newScene(t)
	own, err := attestation.Roots{}.With(s.root.pem())
	if err != nil {
		t.Fatal(err)
	}
	s.roots = own
	if _, err := s.verify(); err != nil {
		t.Error(err)
	}
	slot, f9, want := samples()[0].read(t)
	if _, err := attestation.Verify(slot, f9, own, want); !errors.Is(err, attestation.ErrNotGenuine) {
		t.Errorf("a YubiKey without Yubico's roots: got %v", err)
	}
}

func TestWithRefuses(t *testing.T) {
	root := issue(t, "Test Root", nil, ecKey(t, elliptic.P256()), nil)
	leaf := issue(t, "Leaf", nil, ecKey(t, elliptic.P256()), func(c *x509.Certificate) { c.IsCA = false })
	silent := issue(t, "Silent", nil, ecKey(t, elliptic.P256()), func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = false, false })
	private, err := x509.MarshalPKCS8PrivateKey(root.key)
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string][]byte{
		"nothing":                     nil,
		"text":                        []byte("roots"),
		"DER":                         root.cert.Raw,
		"leaf":                        leaf.pem(),
		"silent":                      silent.pem(),
		"private key":                 append(root.pem(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...),
		"certificate by another name": pem.EncodeToMemory(&pem.Block{Type: "TRUSTED CERTIFICATE", Bytes: root.cert.Raw}),
		"no certificate":              pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}),
		"broken after a root":         append(root.pem(), bytes.Replace(root.pem(), []byte("-----END"), []byte("----END"), 1)...),
		"broken before a root":        append(bytes.Replace(root.pem(), []byte("-----END"), []byte("----END"), 1), root.pem()...),
		"many":                        bytes.Repeat(root.pem(), 17),
		"a root and much else":        append(root.pem(), make([]byte, 64<<10)...),
		"a leaf behind a root":        append(root.pem(), leaf.pem()...),
		"nothing but its bounds":      []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"),
	} {
		got, err := attestation.Genuine().With(file)
		if fault.KindOf(err) != fault.BadRequest || got != (attestation.Roots{}) {
			t.Errorf("%s: got %v, want bad-request", name, err)
		}
	}
	if _, err := attestation.Genuine().With(bytes.Repeat(root.pem(), 16)); err != nil {
		t.Errorf("16 roots: %v", err)
	}
}

// Without roots nothing is trusted, and least of all what web browsers trust.
func TestNoRootsAreNotTheMachines(t *testing.T) {
	own, err := attestation.Roots{}.With(issue(t, "Test Root", nil, ecKey(t, elliptic.P256()), nil).pem())
	if err != nil {
		t.Fatal(err)
	}
	for name, roots := range map[string]attestation.Roots{"none": {}, "own": own, "Yubico's": attestation.Genuine()} {
		if roots.PoolsAreNil() {
			t.Errorf("%s: x509 takes those of the machine", name)
		}
	}
}
