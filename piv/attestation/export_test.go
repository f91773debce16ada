package attestation

import (
	"crypto/x509"
	"time"
)

// NewRoots lets tests have authorities between root and card, as Yubico has.
func NewRoots(trusted, intermediate *x509.Certificate) Roots {
	r := Roots{x509.NewCertPool(), x509.NewCertPool()}
	r.trusted.AddCert(trusted)
	r.intermediates.AddCert(intermediate)
	return r
}

// PoolsAreNil reports whether x509 would take the machine's roots instead: "if
// nil, the system roots or the platform verifier are used".
func (r Roots) PoolsAreNil() bool { return r.options(time.Now()).Roots == nil }

// ParseStatement reads a statement, DER, of at most 4 KiB, and verifies
// nothing, not even the signature.
func ParseStatement(der []byte) (Statement, error) {
	cert, err := parse("statement", der)
	if err != nil {
		return Statement{}, err
	}
	return read(cert)
}
