package attestation

import (
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"math"
	"slices"
	"strings"

	"holdfast/internal/keys"
)

// A Statement is a YubiKey's statement about a key that it made.
type Statement struct {
	Public      []byte // SubjectPublicKeyInfo, DER, as x509.MarshalPKIXPublicKey writes it
	Serial      uint32 // of the YubiKey; 0 when a YubiKey 4 omits it
	Slot        string // 9a, 9c, 9d, 9e, 82 to 95
	PINPolicy   keys.Policy
	TouchPolicy keys.Policy
	Firmware    Firmware
	FormFactor  uint8  // 0 when a YubiKey 4 omits it
	FIPS        bool   // certified after FIPS 140
	Root        string // the subject of the root that it leads to; empty until the chain is verified
}

// The policies of YubiKeys with a fingerprint reader, the PIN or a finger, which
// holdfast's keys do not have.
const (
	PolicyMatchOnce   keys.Policy = "match-once"
	PolicyMatchAlways keys.Policy = "match-always"
)

// subject is the statement's common name without the slot.
const subject = "YubiKey PIV Attestation "

// The last arcs of Yubico's extensions, 1.3.6.1.4.1.41482.3.n ("PIV Attestation",
// and Yubico's OID arc). Only the serial number's value is DER.
const (
	extFirmware   = 3  // three bytes
	extSerial     = 7  // INTEGER
	extPolicies   = 8  // PIN policy, touch policy
	extFormFactor = 9  // one byte
	extFIPS       = 10 // present or not
)

func arc() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 41482, 3} }

// extensionOf returns the value of Yubico's extension n, if there is one.
func extensionOf(cert *x509.Certificate, n int) (value []byte, found bool) {
	id := append(arc(), n)
	for _, e := range cert.Extensions {
		if e.Id.Equal(id) {
			return e.Value, true
		}
	}
	return nil, false
}

func read(cert *x509.Certificate) (Statement, error) {
	var s Statement
	for _, step := range []func(*Statement, *x509.Certificate) error{readKey, readSlot, readFirmware, readSerial, readPolicies, readFormFactor} {
		if err := step(&s, cert); err != nil {
			return Statement{}, err
		}
	}
	_, s.FIPS = extensionOf(cert, extFIPS)
	return s, nil
}

func readKey(s *Statement, cert *x509.Certificate) (err error) {
	if s.Public, err = x509.MarshalPKIXPublicKey(cert.PublicKey); err != nil {
		return malformed("the card's statement is about a key of an unknown kind", err)
	}
	return nil
}

func readSlot(s *Statement, cert *x509.Certificate) error {
	name, found := strings.CutPrefix(cert.Subject.CommonName, subject)
	if !found || len(cert.Subject.Names) != 1 {
		return malformed("the certificate is no statement about a PIV key: its subject names no slot", nil)
	}
	if _, err := keys.ParseSlot(name); err != nil {
		return malformed("the card's statement names no slot for keys", err)
	}
	s.Slot = name
	return nil
}

func readFirmware(s *Statement, cert *x509.Certificate) error {
	v, _ := extensionOf(cert, extFirmware)
	if len(v) != 3 {
		return malformed("the card's statement has no firmware version of three bytes", nil)
	}
	s.Firmware = Firmware{v[0], v[1], v[2]}
	return nil
}

func readSerial(s *Statement, cert *x509.Certificate) error {
	v, found := extensionOf(cert, extSerial)
	if !found && s.mayLackSerial() {
		return nil
	}
	var serial int64
	rest, err := asn1.Unmarshal(v, &serial)
	if err != nil || len(rest) > 0 || serial <= 0 || serial > math.MaxUint32 {
		return malformed("the card's statement has no serial number of 32 bits", err)
	}
	s.Serial = uint32(serial)
	return nil
}

// mayLackSerial reports whether the statement may omit the serial number: published
// statements of YubiKeys 4 exist with and without it.
func (s Statement) mayLackSerial() bool { return s.Serial == 0 && s.Firmware.Less(Firmware{Major: 5}) }

func readPolicies(s *Statement, cert *x509.Certificate) error {
	v, _ := extensionOf(cert, extPolicies)
	if len(v) != 2 {
		return malformed("the card's statement has no PIN and touch policy of two bytes", nil)
	}
	pin := []keys.Policy{1: keys.PolicyNever, keys.PolicyOnce, keys.PolicyAlways, PolicyMatchOnce, PolicyMatchAlways}
	touch := []keys.Policy{1: keys.PolicyNever, keys.PolicyAlways, keys.PolicyCached}
	if v[0] == 0 || int(v[0]) >= len(pin) || v[1] == 0 || int(v[1]) >= len(touch) {
		return malformed(fmt.Sprintf("the card's statement has policies that are not known here: %x", v), nil)
	}
	s.PINPolicy, s.TouchPolicy = pin[v[0]], touch[v[1]]
	return nil
}

func readFormFactor(s *Statement, cert *x509.Certificate) error {
	v, found := extensionOf(cert, extFormFactor)
	if found && len(v) != 1 {
		return malformed("the form factor in the card's statement is not one byte", nil)
	}
	if found {
		s.FormFactor = v[0]
	}
	return nil
}

// pinPolicies and touchPolicies report whether a key can have the policy, or is
// expected to have any.
func pinPolicies(p keys.Policy) bool { return p == AnyPolicy || slices.Contains(keys.PINPolicies(), p) }

func touchPolicies(p keys.Policy) bool {
	return p == AnyPolicy || slices.Contains(keys.TouchPolicies(), p)
}
