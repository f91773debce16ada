package kube

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// An Authority issues certificates. Its own and its key lie in a directory, for
// the programs that want files.
type Authority struct {
	Certificate *x509.Certificate
	PEM         []byte
	CertFile    string
	KeyFile     string

	dir string
	key *ecdsa.PrivateKey
}

// NewAuthority makes an authority in a new directory.
func NewAuthority(dir, name string) (*Authority, error) { return newAuthority(dir, name) }

func newAuthority(dir, name string) (*Authority, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	a := &Authority{dir: dir, key: key, Certificate: template, CertFile: filepath.Join(dir, "ca.crt"), KeyFile: filepath.Join(dir, "ca.key")}
	der, err := a.Issue(template, key.Public())
	if err != nil {
		return nil, err
	}
	if a.Certificate, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	a.PEM = certificatePEM(der)
	return a, writePair(a.CertFile, a.KeyFile, der, key)
}

// Issue signs a certificate. It adds what the template leaves open: a serial number,
// and a validity from an hour ago until tomorrow.
func (a *Authority) Issue(template *x509.Certificate, key crypto.PublicKey) ([]byte, error) {
	if template.SerialNumber == nil {
		serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
		if err != nil {
			return nil, err
		}
		template.SerialNumber = serial
	}
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	}
	return x509.CreateCertificate(rand.Reader, template, a.Certificate, key, a.key)
}

// User is whom a client certificate is for: Kubernetes reads the common name and
// the organisations.
type User struct {
	Name   string
	Groups []string
}

// Client issues a client certificate for a key, valid from an hour ago until
// notAfter, or for a day when that is zero. It returns PEM.
func (a *Authority) Client(u User, key crypto.PublicKey, notAfter time.Time) ([]byte, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: u.Name, Organization: u.Groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if !notAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), notAfter
	}
	der, err := a.Issue(template, key)
	return certificatePEM(der), err
}

// Server makes a key and a certificate for the names and addresses of a server,
// as files NAME.crt and NAME.key, and returns their paths.
func (a *Authority) Server(name string, hosts ...string) (certFile, keyFile string, err error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	der, err := a.Issue(template, key.Public())
	if err != nil {
		return "", "", err
	}
	certFile, keyFile = filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
	return certFile, keyFile, writePair(certFile, keyFile, der, key)
}

// SoftwareUser makes a key in software and a client certificate, as PEM.
func (a *Authority) SoftwareUser(u User) (certificate, privateKey []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if certificate, err = a.Client(u, key.Public(), time.Time{}); err != nil {
		return nil, nil, err
	}
	privateKey, err = keyPEM(key)
	return certificate, privateKey, err
}

func writePair(certFile, keyFile string, der []byte, key *ecdsa.PrivateKey) error {
	private, err := keyPEM(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(keyFile, private, 0o600); err != nil {
		return err
	}
	return os.WriteFile(certFile, certificatePEM(der), 0o644)
}

func keyPEM(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
