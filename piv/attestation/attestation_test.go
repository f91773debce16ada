package attestation_test

import (
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/attestation"
)

// Every kind of card that there is: what it says comes back whole.
func TestVerify(t *testing.T) {
	for name, change := range map[string]func(*scene){
		"as it is":          func(*scene) {},
		"P-384 in the slot": func(s *scene) { s.holds(ecKey(s.t, elliptic.P384()).Public()) },
		"RSA in the slot":   func(s *scene) { s.holds(rsaKey().Public()) },
		"RSA in f9": func(s *scene) {
			s.card = newCard(s.t, s.root, rsaKey(), s.card.key, nil)
		},
		"P-384 in f9": func(s *scene) {
			s.card = newCard(s.t, s.root, ecKey(s.t, elliptic.P384()), s.card.key, nil)
		},
		"RSA in root, f9 and slot": func(s *scene) {
			s.root = issue(s.t, "RSA Root", nil, rsaKey(), nil)
			s.trust(s.root)
			s.card = newCard(s.t, s.root, rsaKey(), nil, nil)
			s.holds(rsaKey().Public())
		},
		"f9 without basic constraints, root without room below it": func(s *scene) {
			s.root = issue(s.t, "U2F Root", nil, rsaKey(), func(c *x509.Certificate) { c.MaxPathLenZero = true })
			s.trust(s.root)
			s.card = newCard(s.t, s.root, ecKey(s.t, elliptic.P256()), s.card.key, yubiKey4)
		},
		"authorities between root and f9": func(s *scene) {
			middle := issue(s.t, "Intermediate", s.root, ecKey(s.t, elliptic.P256()), nil)
			s.roots = attestation.NewRoots(s.root.cert, middle.cert)
			s.card = newCard(s.t, middle, ecKey(s.t, elliptic.P256()), s.card.key, nil)
		},
		"policies that are not known beforehand": func(s *scene) {
			s.want.PINPolicy, s.want.TouchPolicy = attestation.AnyPolicy, attestation.AnyPolicy
		},
		"an extension of which nothing is known": func(s *scene) {
			s.card.extensions = append(s.card.extensions, pkix.Extension{Id: arc(99), Value: []byte("new")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			change(s)
			got, err := s.verify()
			if err != nil {
				t.Fatal(err)
			}
			want := attestation.Statement{
				Public: s.want.Public, Serial: serial, Slot: "9a", PINPolicy: keys.PolicyOnce, TouchPolicy: keys.PolicyAlways,
				Firmware: attestation.Firmware{Major: 5, Minor: 4, Patch: 3}, FormFactor: 1, Root: s.root.cert.Subject.String(),
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// yubiKey4 makes f9's certificate one such as YubiKeys 4 have.
func yubiKey4(c *x509.Certificate) {
	c.BasicConstraintsValid, c.IsCA = false, false
	c.ExtraExtensions = []pkix.Extension{{Id: arc(3), Value: []byte{4, 3, 4}}}
}

// Verify rejects an expectation with a missing member: it could not compare it.
func TestVerifyWantsAllThatIsCompared(t *testing.T) {
	for name, change := range map[string]func(*attestation.Expected){
		"nothing":                       func(e *attestation.Expected) { *e = attestation.Expected{} },
		"no key":                        func(e *attestation.Expected) { e.Public = nil },
		"a key that is none":            func(e *attestation.Expected) { e.Public = []byte("key") },
		"a key with something after it": func(e *attestation.Expected) { e.Public = append(e.Public, 0) },
		"no serial number":              func(e *attestation.Expected) { e.Serial = 0 },
		"no slot":                       func(e *attestation.Expected) { e.Slot = "" },
		"slot f9":                       func(e *attestation.Expected) { e.Slot = "f9" },
		"no PIN policy":                 func(e *attestation.Expected) { e.PINPolicy = "" },
		"no touch policy":               func(e *attestation.Expected) { e.TouchPolicy = "" },
		"a PIN policy for touches":      func(e *attestation.Expected) { e.PINPolicy = keys.PolicyCached },
		"a touch policy for PINs":       func(e *attestation.Expected) { e.TouchPolicy = keys.PolicyOnce },
		"no firmware":                   func(e *attestation.Expected) { e.Firmware = "" },
	} {
		s := newScene(t)
		change(&s.want)
		if got, err := s.verify(); fault.KindOf(err) != fault.BadRequest || got.Slot != "" {
			t.Errorf("%s: got %+v, %v; want bad-request", name, got, err)
		}
	}
}

// YubiKeys 4 may keep their serial number to themselves; no others may.
func TestStatementWithoutSerialNumber(t *testing.T) {
	s := newScene(t)
	s.card.says(7, nil)
	got, err := s.verify()
	refused(t, got, err, fault.BadRequest, "no serial number")

	s = newScene(t)
	s.card.says(7, nil)
	s.card.says(3, []byte{4, 4, 5})
	s.want.Firmware = "4.4.5"
	if got, err = s.verify(); err != nil || got.Serial != 0 {
		t.Errorf("got %+v, %v; want a statement without serial number", got, err)
	}

	s.slot = nil
	s.card.says(7, mustDER(t, 1))
	got, err = s.verify()
	refused(t, got, err, fault.KeyMismatch, fmt.Sprintf("of card 1, not of card %d", serial))
}

func mustDER(t testing.TB, value any) []byte {
	t.Helper()
	der, err := asn1.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// Roots are shared by all who verify, and nothing is changed in them or in what
// came from the card (the race detector looks on).
func TestVerifySideBySide(t *testing.T) {
	s := newScene(t)
	s.card = newCard(t, s.root, ecKey(t, elliptic.P256()), s.card.key, yubiKey4)
	if _, err := s.verify(); err != nil {
		t.Fatal(err)
	}
	slot, f9 := string(s.slot), string(s.f9)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if _, err := attestation.Verify(s.slot, s.f9, s.roots, s.want); err != nil {
				t.Error(err)
			}
			if _, err := s.roots.With(s.root.pem()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if slot != string(s.slot) || f9 != string(s.f9) {
		t.Error("a certificate was changed")
	}
}
