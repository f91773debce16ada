package attestation

import (
	"bytes"
	"crypto/x509"
	_ "embed" // Yubico's certificates
	"encoding/pem"
	"fmt"
	"time"

	"holdfast/internal/fault"
)

// Yubico's roots, one for each generation: PIV Root CA 263751, the U2F Root CA
// 457200631 of some YubiKeys 4 from before mid-2017 and from 2018, and Attestation
// Root 1 of firmware 5.7.4 and later. The first also has an older certificate, with
// the same name and key.
//
//go:embed certs/roots.pem
var genuineRoots []byte

// The certificates between Attestation Root 1 and slot f9, which cards do not hold.
//
//go:embed certs/intermediates.pem
var genuineIntermediates []byte

// MaxRootsFile is the size of the largest file of roots, in bytes.
const MaxRootsFile = 64 << 10

const maxRoots = 16

// Roots are the certificates that statements must lead to. The zero value trusts
// nothing. Roots do not change, and may be used by several goroutines.
type Roots struct{ trusted, intermediates *x509.CertPool }

// Genuine returns Yubico's roots.
func Genuine() Roots {
	r := Roots{x509.NewCertPool(), x509.NewCertPool()}
	r.trusted.AppendCertsFromPEM(genuineRoots)
	r.intermediates.AppendCertsFromPEM(genuineIntermediates)
	return r
}

// With returns r and the certificates of file, PEM, all of which are trusted like
// Yubico's: for YubiKeys whose slot f9 has a certificate of their owner's. It returns
// a bad-request [fault.Error] when the file holds none, more than 16, or anything but
// authorities' certificates.
func (r Roots) With(file []byte) (Roots, error) {
	if len(file) > MaxRootsFile {
		return Roots{}, badRoots(fmt.Sprintf("a file of %d bytes is too long for roots", len(file)), nil)
	}
	more, err := authorities(file)
	if err != nil {
		return Roots{}, err
	}
	all := Roots{x509.NewCertPool(), r.intermediates}
	if r.trusted != nil {
		all.trusted = r.trusted.Clone()
	}
	for _, cert := range more {
		all.trusted.AddCert(cert)
	}
	return all, nil
}

// authorities reads the certificates of a file. It counts the blocks, because
// pem.Decode skips those that it cannot read, and a missing root would be noticed much
// later.
func authorities(file []byte) ([]*x509.Certificate, error) {
	var list []*x509.Certificate
	begun := bytes.Count(file, []byte("-----BEGIN"))
	if begun == 0 || begun > maxRoots {
		return nil, badRoots(fmt.Sprintf("the file of roots holds %d certificates", begun), nil)
	}
	for n := 1; n <= begun; n++ {
		var block *pem.Block
		if block, file = pem.Decode(file); block == nil {
			return nil, badRoots("the file of roots holds a block that is not PEM", nil)
		}
		cert, err := authority(block)
		if err != nil {
			return nil, badRoots(fmt.Sprintf("block %d of the file of roots is no certificate of an authority", n), err)
		}
		list = append(list, cert)
	}
	return list, nil
}

func authority(block *pem.Block) (*x509.Certificate, error) {
	if block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("it is a %.40q", block.Type)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	if !cert.BasicConstraintsValid || !cert.IsCA {
		return nil, fmt.Errorf("%.80q says of itself that it is none", cert.Subject)
	}
	return cert, nil
}

func badRoots(fact string, cause error) error {
	return &fault.Error{
		Kind: fault.BadRequest, Message: fact, Err: cause,
		Hint: fmt.Sprintf("PEM blocks of type CERTIFICATE with CA:TRUE, 1 to %d", maxRoots),
	}
}

// options makes x509 search a chain to one of the roots. A nil pool would mean the
// machine's own roots.
func (r Roots) options(at time.Time) x509.VerifyOptions {
	if r.trusted == nil {
		r.trusted = x509.NewCertPool()
	}
	return x509.VerifyOptions{
		Roots: r.trusted, Intermediates: r.intermediates, CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, // they have none
	}
}
