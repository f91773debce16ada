package attestation_test

import (
	"crypto/elliptic"
	"crypto/x509"
	"testing"

	"holdfast/internal/fault"
	"holdfast/piv/attestation"
)

// TestVerifyAttester: before a key is made the card's own certificate says whether
// what it states will be trusted.
func TestVerifyAttester(t *testing.T) {
	s := newScene(t)
	if err := attestation.VerifyAttester(s.card.f9.cert.Raw, s.roots); err != nil {
		t.Errorf("a good one: %v", err)
	}
	leaf := issue(t, "leaf", s.root, ecKey(t, elliptic.P256()), func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = false, true })
	for name, test := range map[string]struct {
		f9    []byte
		roots attestation.Roots
		kind  fault.Kind
		fact  string
	}{
		"none":            {nil, s.roots, fault.BadRequest, "no attestation certificate"},
		"no certificate":  {[]byte("f9"), s.roots, fault.BadRequest, "not a certificate"},
		"not trusted":     {s.card.f9.cert.Raw, attestation.Genuine(), fault.KeyMismatch, "no root that is trusted"},
		"ended":           {issue(t, "old", s.root, ecKey(t, elliptic.P256()), ended).cert.Raw, s.roots, fault.KeyMismatch, ""},
		"signs no others": {leaf.cert.Raw, s.roots, fault.KeyMismatch, "may sign"},
	} {
		refused(t, attestation.Statement{}, attestation.VerifyAttester(test.f9, test.roots), test.kind, test.fact)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}
