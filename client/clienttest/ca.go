package clienttest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// CA is a certificate authority with its key in memory, for servers and clients
// of a test on this machine.
type CA struct {
	Certificate *x509.Certificate
	PEM         []byte

	tb  testing.TB
	key crypto.Signer
}

// NewCA makes a CA.
func NewCA(tb testing.TB) *CA {
	tb.Helper()
	ca := &CA{tb: tb, key: newKey(tb)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	ca.Certificate = ca.issue(template, template, ca.key.Public())
	ca.PEM = PEM(ca.Certificate.Raw)
	return ca
}

func newKey(tb testing.TB) crypto.Signer {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// PEM encodes certificates, leaf first.
func PEM(certificates ...[]byte) []byte {
	var out []byte
	for _, der := range certificates {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return out
}

// Pool returns a pool that holds the CA alone.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.Certificate)
	return pool
}

// Issue returns a certificate, DER, for the request, DER: with its subject, its
// names and its key, for clients and servers, valid for an hour.
func (ca *CA) Issue(request []byte) []byte {
	ca.tb.Helper()
	r, err := x509.ParseCertificateRequest(request)
	if err == nil {
		err = r.CheckSignature()
	}
	if err != nil {
		ca.tb.Fatal(err)
	}
	return ca.leaf(r.Subject, r.PublicKey, r.DNSNames, r.IPAddresses)
}

// IssueFor is Issue for a public key without a request.
func (ca *CA) IssueFor(commonName string, public crypto.PublicKey) []byte {
	ca.tb.Helper()
	return ca.leaf(pkix.Name{CommonName: commonName}, public, []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)})
}

// Server returns the certificate and key, in memory, of a server at 127.0.0.1
// and localhost.
func (ca *CA) Server() tls.Certificate {
	ca.tb.Helper()
	key := newKey(ca.tb)
	return tls.Certificate{Certificate: [][]byte{ca.IssueFor("localhost", key.Public())}, PrivateKey: key}
}

func (ca *CA) leaf(subject pkix.Name, public crypto.PublicKey, names []string, addresses []net.IP) []byte {
	ca.tb.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		ca.tb.Fatal(err)
	}
	return ca.issue(&x509.Certificate{
		SerialNumber: serial, Subject: subject, DNSNames: names, IPAddresses: addresses,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, ca.Certificate, public).Raw
}

func (ca *CA) issue(template, parent *x509.Certificate, public crypto.PublicKey) *x509.Certificate {
	ca.tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, ca.key)
	if err != nil {
		ca.tb.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		ca.tb.Fatal(err)
	}
	return certificate
}
