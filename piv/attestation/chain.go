package attestation

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"time"

	"holdfast/internal/fault"
)

// maxCertificate is the size of the longest certificate from a card, in bytes: a PIV
// data object holds less than 3 KiB.
const maxCertificate = 4096

// parseBoth reads the two certificates that a card hands out.
func parseBoth(slotCert, f9 []byte) (statement, signer *x509.Certificate, err error) {
	if statement, err = parse("statement", slotCert); err != nil {
		return nil, nil, err
	}
	signer, err = parseSigner(f9)
	return statement, signer, err
}

// parseSigner reads the certificate of the card's attestation key.
func parseSigner(f9 []byte) (*x509.Certificate, error) {
	if len(f9) == 0 {
		return nil, &fault.Error{
			Kind: fault.BadRequest, Message: "the card has no attestation certificate in slot f9",
			Hint: "it cannot be put back: use another YubiKey, or make the key unattested",
		}
	}
	return parse("attestation certificate", f9)
}

// parse reads one certificate, which must be valid today; what names it in errors.
// x509 rejects duplicate extensions and data after the end.
func parse(what string, der []byte) (*x509.Certificate, error) {
	if len(der) > maxCertificate {
		return nil, malformed(fmt.Sprintf("the card's %s has %d bytes, more than %d", what, len(der), maxCertificate), nil)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, malformed(fmt.Sprintf("the card's %s is not a certificate", what), err)
	}
	if len(cert.UnhandledCriticalExtensions) > 0 {
		return nil, malformed(fmt.Sprintf("the card's %s has a critical extension that is not known here", what), nil)
	}
	return cert, nil
}

func malformed(fact string, cause error) error {
	return &fault.Error{Kind: fault.BadRequest, Message: fact, Hint: hintForged, Err: cause}
}

// checkSigned returns an error unless signer's key may sign statements and has
// signed this one, and both are valid today.
//
// This is not left to x509.Certificate.Verify, with the statement as leaf and f9
// as intermediate: the certificates of YubiKeys 4 are not marked as an
// authority's, and the U2F root allows none below them (path length 0). Verify could
// accept them only if certificates were changed after they were read.
func checkSigned(statement, signer *x509.Certificate) error {
	if err := inForce("the card's statement", statement); err != nil {
		return err
	}
	if err := checkSigner(signer); err != nil {
		return err
	}
	if !bytes.Equal(statement.RawIssuer, signer.RawSubject) {
		return otherSigner(nil)
	}
	if err := signer.CheckSignature(statement.SignatureAlgorithm, statement.RawTBSCertificate, statement.Signature); err != nil {
		return otherSigner(err)
	}
	return nil
}

// checkSigner returns an error unless signer is valid today and its key may sign
// statements.
func checkSigner(signer *x509.Certificate) error {
	if err := inForce("the card's attestation certificate", signer); err != nil {
		return err
	}
	if !maySign(signer) {
		return notGenuine("the certificate in the card's slot f9 is none that may sign statements", nil)
	}
	return nil
}

func otherSigner(cause error) error {
	return &fault.Error{
		Kind: fault.KeyMismatch, Message: "the statement was not signed by the key of the card's attestation certificate",
		Hint: "the two are of different cards: plug in one card at a time, and try again", Err: cause,
	}
}

// maySign reports whether f9's key is meant to sign statements. The certificates of
// YubiKeys 4 lack basic constraints, which RFC 5280, section 4.2.1.9, requires of an
// authority. The firmware extension for PIV distinguishes them from U2F's
// certificates of the same root.
func maySign(f9 *x509.Certificate) bool {
	if f9.KeyUsage != 0 && f9.KeyUsage&x509.KeyUsageCertSign == 0 {
		return false
	}
	if f9.BasicConstraintsValid {
		return f9.IsCA
	}
	_, piv := extensionOf(f9, extFirmware)
	return piv
}

// lead returns the subject of the trusted root that f9's chain leads to.
func (r Roots) lead(f9 *x509.Certificate) (string, error) {
	chains, err := f9.Verify(r.options(time.Time{}))
	if err == nil {
		return chains[0][len(chains[0])-1].Subject.String(), nil
	}
	// x509 does not distinguish an expired authority from an unknown one. If there
	// was a chain when f9 was made, the error names the expired one.
	if chains, err := f9.Verify(r.options(f9.NotBefore)); err == nil {
		for _, authority := range chains[0][1:] {
			if err := inForce(fmt.Sprintf("the authority %.80q", authority.Subject), authority); err != nil {
				return "", err
			}
		}
	}
	return "", notGenuine("the card's attestation certificate leads to no root that is trusted here", err)
}

func notGenuine(fact string, cause error) error {
	err := ErrNotGenuine
	if cause != nil {
		err = fmt.Errorf("%w: %w", ErrNotGenuine, cause)
	}
	return &fault.Error{
		Kind: fault.KeyMismatch, Message: fact, Err: err,
		Hint: "if slot f9 was given a certificate of your own, name its root with 'piv-roots' in agent.yaml; else use another YubiKey",
	}
}

// inForce returns an error unless cert is valid now; what names it in the error.
func inForce(what string, cert *x509.Certificate) error {
	now, fact := time.Now(), ""
	switch {
	case now.After(cert.NotAfter):
		fact = fmt.Sprintf("%s expired on %s", what, cert.NotAfter.UTC().Format(time.DateOnly))
	case now.Before(cert.NotBefore):
		fact = fmt.Sprintf("%s is not valid before %s", what, cert.NotBefore.UTC().Format(time.DateOnly))
	default:
		return nil
	}
	return &fault.Error{
		Kind: fault.KeyMismatch, Message: fact, Err: ErrExpired,
		Hint: "check this machine's clock; Yubico's certificates last until 2050 and longer",
	}
}
