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
	"net/netip"
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
	if certificate, err = certify(key, "*."+profile.Domain, netip.AddrFrom4([4]byte{127, 0, 0, 1})); err != nil {
		return nil, "", err
	}
	secret, err = key.Bytes()
	return secret, certificate, err
}

// certify returns the certificate of the proxy's key for a name and an address, PEM.
func certify(key *ecdsa.PrivateKey, name string, address netip.Addr) (string, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return "", err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "holdfast-broker on this machine"},
		NotBefore:    now.Add(-time.Hour), // a clock may be set back
		NotAfter:     now.Add(lifetime),
		DNSNames:     []string{name},
		IPAddresses:  []net.IP{address.AsSlice()},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		// No CA: with the key, an attacker could otherwise issue certificates for any
		// name to clients that pin this one.
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), nil
}

// certify returns a certificate of the identity's key for one profile at an address.
func (i *Identity) certify(name string, address netip.Addr) (string, error) {
	key, ok := i.Certificate.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return "", errors.New("the proxy's key is no ECDSA key")
	}
	return certify(key, name+"."+profile.Domain, address)
}

// secret returns the scalar of the identity's key.
func (i *Identity) secret() ([]byte, error) {
	key, ok := i.Certificate.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the proxy's key is no ECDSA key")
	}
	return key.Bytes()
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
