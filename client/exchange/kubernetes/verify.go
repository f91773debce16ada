package kubernetes

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"time"
)

// maxChain is the largest number of certificates in an answer.
const maxChain = 10

// A CertificateError says why an issued certificate is not used.
type CertificateError struct {
	Message string
	Hint    string // the next step; may be empty
}

// Error returns the message.
func (e *CertificateError) Error() string { return e.Message }

func unfit(hint, format string, args ...any) error {
	return &CertificateError{Message: fmt.Sprintf("the certificate that was issued "+format, args...), Hint: hint}
}

// checkCertificate returns the chain in data (PEM) as DER, leaf first, when its leaf
// is the certificate that request (DER) asked for.
func checkCertificate(data, request []byte, now time.Time) ([][]byte, error) {
	chain, leaf, err := parseChain(data)
	if err != nil {
		return nil, err
	}
	asked, err := x509.ParseCertificateRequest(request)
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	own, ok := asked.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !ok || !own.Equal(leaf.PublicKey):
		return nil, unfit("", "is for another key")
	case !sameSubject(asked.Subject, leaf.Subject):
		return nil, unfit("the signer chooses subjects itself; check that it is the right signer",
			"is for %s, not for %s", oneLine(leaf.Subject.String()), oneLine(asked.Subject.String()))
	case leaf.IsCA:
		return nil, unfit("", "is a CA's")
	case !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth):
		return nil, unfit("check that it is the right signer", "does not allow its use by a client")
	}
	if err := checkTimes(leaf, now); err != nil {
		return nil, err
	}
	return chain, nil
}

// clockHint is the hint for certificates that are not valid when they are issued.
const clockHint = "the clocks of this machine and of the signer differ: timedatectl shows this one's"

func checkTimes(leaf *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(leaf.NotBefore):
		return unfit(clockHint, "is valid from %s only, and here it is %s", stamp(leaf.NotBefore), stamp(now))
	case !now.Before(leaf.NotAfter):
		return unfit(clockHint, "expired on %s, and here it is %s", stamp(leaf.NotAfter), stamp(now))
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// parseChain reads certificates, PEM, as a signer puts them into a request's
// status: the leaf, then intermediates; text around them is allowed.
func parseChain(data []byte) (chain [][]byte, leaf *x509.Certificate, err error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		switch {
		case block.Type != "CERTIFICATE":
			return nil, nil, unfit("", "comes with something else, %.40q", block.Type)
		case err != nil:
			return nil, nil, unfit("", "cannot be read: %v", err)
		case len(chain) == maxChain:
			return nil, nil, unfit("", "has a chain of more than %d", maxChain)
		case leaf == nil:
			leaf = certificate
		}
		chain = append(chain, bytes.Clone(block.Bytes))
	}
	if leaf == nil {
		return nil, nil, unfit("", "is not PEM")
	}
	return chain, leaf, nil
}

// sameSubject reports whether two names have the same attributes, in whatever
// order: signers sort them, and the API server reads them as sets.
func sameSubject(a, b pkix.Name) bool {
	return slices.Equal(attributes(a), attributes(b))
}

func attributes(name pkix.Name) []string {
	var list []string
	for _, a := range name.Names {
		list = append(list, fmt.Sprintf("%s=%q", a.Type, fmt.Sprint(a.Value)))
	}
	slices.Sort(list)
	return list
}
