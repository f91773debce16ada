package store

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"holdfast/internal/keys"
)

// The limits of a record's members. They are far above what a key needs and keep
// every record below [MaxRecord].
const (
	maxText    = 256 // bytes of a name of a user, a device or a request
	maxChain   = 16
	maxServers = 64
)

var backendGrammar = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// check returns the first reason why r cannot be used.
func (r *Record) check() error {
	if r.Version != version {
		return fmt.Errorf("version %d is not known", r.Version)
	}
	if r.Generation == 0 {
		return errors.New("generation 0")
	}
	if err := keys.CheckName(r.Name); err != nil {
		return err
	}
	for _, check := range []func() error{r.checkUse, r.checkMaterial, r.checkCard, r.checkConfirm, r.checkChain, r.checkServers, r.checkTexts} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkUse compares the purpose, the algorithm and the public key with each other.
func (r *Record) checkUse() error {
	if _, err := keys.ParsePurpose(string(r.Purpose)); err != nil {
		return err
	}
	if _, err := keys.ParseAlgorithm(string(r.Algorithm)); err != nil {
		return err
	}
	if r.TLS12 && !r.Purpose.TLS() {
		return fmt.Errorf("tls12 is set on a %s key", r.Purpose)
	}
	public, err := keys.ParsePublic(r.Material.Public)
	if err != nil {
		return err
	}
	algorithm, bits, err := keys.AlgorithmOf(public)
	if err != nil {
		return err
	}
	if algorithm != r.Algorithm || bits != r.RSABits {
		return fmt.Errorf("algorithm %s with %d RSA bits, but the public key is for %s with %d", r.Algorithm, r.RSABits, algorithm, bits)
	}
	if r.Algorithm == keys.RS256 && bits != 2048 && bits != 3072 && bits != 4096 {
		return fmt.Errorf("an RSA key of %d bits", bits)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil || !bytes.Equal(der, r.Material.Public) {
		return errors.New("the public key is not in canonical form")
	}
	return nil
}

func (r *Record) checkMaterial() error { return checkDevice(r.Material.Backend, r.Material.Device) }

// checkDevice checks the form of a backend's data, whose content is opaque here.
func checkDevice(backend string, device json.RawMessage) error {
	if !backendGrammar.MatchString(backend) {
		return fmt.Errorf("backend %.40q", backend)
	}
	if len(device) == 0 || string(device) == "null" {
		return errors.New("the device's data is missing")
	}
	switch twice, err := repeats(device); {
	case err != nil:
		return fmt.Errorf("the device's data: %w", err)
	case twice != "":
		return fmt.Errorf("the device's data has member %.40q twice", twice)
	}
	return nil
}

// checkChain parses every certificate; the first must be for this key.
func (r *Record) checkChain() error {
	if len(r.Chain) > maxChain {
		return fmt.Errorf("a chain of %d certificates", len(r.Chain))
	}
	for i, der := range r.Chain {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("certificate %d of the chain: %w", i+1, err)
		}
		if i == 0 && !bytes.Equal(certificate.RawSubjectPublicKeyInfo, r.Material.Public) {
			return errors.New("the first certificate of the chain is for another key")
		}
	}
	return nil
}

func (r *Record) checkServers() error {
	if len(r.Servers) > 0 && r.Purpose != keys.TLSClient {
		return fmt.Errorf("a %s key is bound to servers", r.Purpose)
	}
	if len(r.Servers) > maxServers {
		return fmt.Errorf("bound to %d servers", len(r.Servers))
	}
	for _, s := range r.Servers {
		if err := s.check(); err != nil {
			return fmt.Errorf("server %.80q: %w", s.Address, err)
		}
	}
	return nil
}

func (s Server) check() error {
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" || strings.ContainsFunc(host, odd) {
		return errors.New("want HOST:PORT")
	}
	rest := []byte(s.CA)
	for len(bytes.TrimSpace(rest)) > 0 || len(s.CA) == 0 {
		block, after := pem.Decode(rest)
		if block == nil || block.Type != "CERTIFICATE" {
			return errors.New("want certificates in PEM and nothing else")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return err
		}
		rest = after
	}
	return nil
}

// odd reports whether c cannot be in the name of a host.
func odd(c rune) bool { return c <= ' ' || c > '~' || c == '/' || c == '@' }

func (r *Record) checkTexts() error { return checkTexts(r.Owner, r.RequestID, r.Made, r.Created) }

// checkTexts bounds the texts that people and other programs see.
func checkTexts(owner Owner, requestID string, made Made, created time.Time) error {
	for what, text := range map[string]string{
		"the owner's name": owner.User,
		"the request id":   requestID,
		"the device":       made.Device,
		"the maker":        made.Maker,
	} {
		if len(text) > maxText || strings.ContainsFunc(text, unicode.IsControl) {
			return fmt.Errorf("%s is longer than %d bytes or holds control characters", what, maxText)
		}
	}
	if _, offset := created.Zone(); offset != 0 || created.Location() != time.UTC || created.IsZero() {
		return errors.New("the time of creation is missing or not in UTC")
	}
	return nil
}
