package loopback

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"holdfast/client/profile"
)

// lifetime is how long a certificate is valid: kubeconfigs pin it, so it must not need
// a renewal, and it vouches for no other server.
const lifetime = 10 * 365 * 24 * time.Hour

// generate makes a key, as its scalar (SEC 1, 32 bytes), and its certificate, PEM.
func generate() (secret []byte, certificate string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, "", err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, "", err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "holdfast-broker on this machine"},
		NotBefore:    now.Add(-time.Hour), // a clock may be set back
		NotAfter:     now.Add(lifetime),
		DNSNames:     []string{"*." + profile.Domain},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		// No CA: with the key, an attacker could otherwise issue certificates for any
		// name to clients that pin this one.
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, "", err
	}
	if secret, err = key.Bytes(); err != nil {
		return nil, "", err
	}
	return secret, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), nil
}

// assemble puts a certificate and the scalar of its key together.
func assemble(certificate string, secret []byte) (tls.Certificate, error) {
	block, rest := pem.Decode([]byte(certificate))
	if block == nil || block.Type != "CERTIFICATE" || len(rest) != 0 {
		return tls.Certificate{}, errors.New("the certificate is no PEM certificate")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("the certificate: %w", err)
	}
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), secret)
	if err != nil {
		return tls.Certificate{}, errors.New("the certificate's key is no P-256 key")
	}
	if !key.PublicKey.Equal(leaf.PublicKey) {
		return tls.Certificate{}, errors.New("the certificate is for another key")
	}
	return tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key, Leaf: leaf}, nil
}
