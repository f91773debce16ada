package upstream_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"

	"holdfast/client/clienttest"
	"holdfast/internal/keys"
)

// expiring returns a certificate for a public key that ends at a moment, and makes
// the server take it.
func (r *rig) expiring(t *testing.T, public []byte, end time.Time) []byte {
	t.Helper()
	subject, err := keys.ParsePublic(public)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "short CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, authority.Public(), authority)
	if err != nil {
		t.Fatal(err)
	}
	if !r.server.TLS.ClientCAs.AppendCertsFromPEM(clienttest.PEM(der)) {
		t.Fatal("the server does not take the CA")
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "alice"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if der, err = x509.CreateCertificate(rand.Reader, leaf, root, subject, authority); err != nil {
		t.Fatal(err)
	}
	return der
}
