// Package attestation decides whether a YubiKey has proved that it made a key,
// and which key, where, and under which policies.
//
// On request a YubiKey signs a statement about a key in one of its slots: a
// certificate for the key's public half, made by the key in slot f9, whose own
// certificate leads to a root of Yubico's. A key that was imported gets none.
// The format is Yubico's "PIV Attestation" (developers.yubico.com/PIV). Start at
// [Verify]; [Genuine] has Yubico's roots, and [Warnings] the known flaws of firmware
// versions.
//
// A statement has no time and no challenge in it: it proves that the key was made in
// a genuine YubiKey and exists nowhere else, not that the YubiKey is plugged in now,
// nor whose it is. It does not protect against a flaw in the YubiKey, or a leak of the
// maker's signing keys. Roots that an administrator adds are trusted as much as
// Yubico's.
package attestation

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// The causes in a [fault.Error] of Verify, for errors.Is.
var (
	// ErrNotGenuine: the certificate in slot f9 leads to no trusted root: the card
	// is not a YubiKey, or its owner has put another key into slot f9.
	ErrNotGenuine = errors.New("no trusted root")

	// ErrExpired: a certificate of the chain is not valid today.
	ErrExpired = errors.New("outside its validity")

	// ErrMismatch: the statement is genuine, and about another key or card.
	ErrMismatch = errors.New("not what was expected")

	// ErrWeak: the private key can be computed from the public key.
	ErrWeak = errors.New("weak key")
)

// AnyPolicy in [Expected] is for keys whose policy is known from the statement alone,
// as on cards with a firmware before 5.3: the caller takes it from there.
const AnyPolicy keys.Policy = "any"

// Expected holds the caller's own facts about the key and its card.
// Every member is compared, so every member is needed.
type Expected struct {
	Public      []byte // the key: SubjectPublicKeyInfo, DER
	Serial      uint32
	Slot        string // 9a, 9c, 9d, 9e, 82 to 95
	PINPolicy   keys.Policy
	TouchPolicy keys.Policy
	Firmware    string // as the card's PIV applet reports it: 5.4.3
}

// Verify returns a YubiKey's statement about a key if slotCert, DER, is such a
// statement, signed by the key of f9, DER, whose chain leads to one of roots, and if
// it agrees with want. Otherwise it returns no statement and a [fault.Error]:
// key-mismatch when the statement is not genuine or about another key, bad-request when it is malformed or too long (4 KiB each) or
// the expectation is incomplete, unsupported when the key is weak. Its cause is
// one of this package's errors where these fit.
//
// Both certificates must be valid today, and so must those up to the root. That
// rejects no YubiKey, although its certificates are never renewed: Yubico's end in
// 2050, 2052 and 9999, and statements take their dates from f9.
//
// A statement of a YubiKey 4 may lack the serial number, which is then 0 in the result
// and was not compared; the public key was.
func Verify(slotCert, f9 []byte, roots Roots, want Expected) (Statement, error) {
	public, err := want.check()
	if err != nil {
		return Statement{}, err
	}
	statement, signer, err := parseBoth(slotCert, f9)
	if err != nil {
		return Statement{}, err
	}
	if err := checkSigned(statement, signer); err != nil {
		return Statement{}, err
	}
	root, err := roots.lead(signer)
	if err != nil {
		return Statement{}, err
	}
	claims, err := read(statement)
	if err != nil {
		return Statement{}, err
	}
	if err := want.compare(claims, public); err != nil {
		return Statement{}, err
	}
	if err := checkSound(claims, statement, signer); err != nil {
		return Statement{}, err
	}
	claims.Root = root
	return claims, nil
}

// VerifyAttester returns an error unless f9, DER, is a certificate that Verify would
// take for a statement's signer, valid today, whose chain leads to one of roots. So a
// caller knows before it makes a key whether the card can prove that. The errors are
// Verify's.
func VerifyAttester(f9 []byte, roots Roots) error {
	signer, err := parseSigner(f9)
	if err != nil {
		return err
	}
	if err := checkSigner(signer); err != nil {
		return err
	}
	_, err = roots.lead(signer)
	return err
}

// check returns the expected key in the canonical encoding of [Statement], or an error
// for a missing member.
func (e Expected) check() ([]byte, error) {
	public, err := keys.ParsePublic(e.Public)
	if err != nil {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: "a statement was to be compared with no usable public key", Err: err}
	}
	if _, err := keys.ParseSlot(e.Slot); err != nil {
		return nil, err
	}
	if _, err := ParseFirmware(e.Firmware); err != nil {
		return nil, err
	}
	if e.Serial == 0 {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: "a statement was to be compared with no serial number"}
	}
	if !pinPolicies(e.PINPolicy) || !touchPolicies(e.TouchPolicy) {
		return nil, &fault.Error{
			Kind: fault.BadRequest, Message: fmt.Sprintf("a statement was to be compared with the policies %.20q and %.20q", e.PINPolicy, e.TouchPolicy),
		}
	}
	return x509.MarshalPKIXPublicKey(public)
}

// compare returns the first difference between claims and e.
func (e Expected) compare(claims Statement, public []byte) error {
	switch {
	case !bytes.Equal(claims.Public, public):
		return mismatch("the card's statement is about another key than the one in slot "+e.Slot,
			"the key in the slot was replaced, or another card answered: compare them with 'holdfast piv list'")
	case claims.Serial != e.Serial && !claims.mayLackSerial():
		return mismatch(fmt.Sprintf("the statement is of card %d, not of card %d", claims.Serial, e.Serial),
			"plug in one card at a time, and try again")
	case claims.Slot != e.Slot:
		return mismatch(fmt.Sprintf("the statement is about slot %s, not about slot %s", claims.Slot, e.Slot), hintForged)
	case e.PINPolicy != AnyPolicy && claims.PINPolicy != e.PINPolicy:
		return mismatch(fmt.Sprintf("the key's PIN policy is %s, not %s", claims.PINPolicy, e.PINPolicy), hintPolicy)
	case e.TouchPolicy != AnyPolicy && claims.TouchPolicy != e.TouchPolicy:
		return mismatch(fmt.Sprintf("the key's touch policy is %s, not %s", claims.TouchPolicy, e.TouchPolicy), hintPolicy)
	case claims.Firmware.String() != e.Firmware:
		return mismatch(fmt.Sprintf("the statement is of firmware %s, and the card reports %s", claims.Firmware, e.Firmware), hintForged)
	}
	return nil
}

const (
	hintForged = "no genuine YubiKey states this: do not use the card, and check the devices between it and this machine"
	hintPolicy = "a policy cannot be changed: make a new key with the right policy"
)

func mismatch(fact, hint string) error {
	return &fault.Error{Kind: fault.KeyMismatch, Message: fact, Hint: hint, Err: ErrMismatch}
}

// checkSound rejects genuine keys that can be computed by anyone: RSA keys of some
// YubiKeys 4 (ROCA), in the slot or in f9, where they could sign any statement.
func checkSound(claims Statement, statement, signer *x509.Certificate) error {
	if key, ok := signer.PublicKey.(*rsa.PublicKey); ok && keys.ROCA(key.N) {
		return weak("the card's attestation key has the ROCA fingerprint (YSA-2017-01): anybody can sign for the card")
	}
	key, ok := statement.PublicKey.(*rsa.PublicKey)
	if ok && keys.ROCA(key.N) {
		return weak("the key has the ROCA fingerprint (YSA-2017-01): its private half can be computed")
	}
	if ok && roca().covers(claims.Firmware) {
		return weak(fmt.Sprintf("the key was made by firmware %s, which makes weak RSA keys (ROCA, YSA-2017-01)", claims.Firmware))
	}
	return nil
}

func weak(fact string) error {
	return &fault.Error{Kind: fault.Unsupported, Message: fact, Hint: "make an ES256 key, or use a newer YubiKey", Err: ErrWeak}
}
