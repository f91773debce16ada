package attestation_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/attestation"
)

// The fault table's row on attestation: each fault is refused, with its own
// kind, cause and words.
func TestVerifyRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*scene)
		kind   fault.Kind
		cause  error
		fact   string
	}{
		{"another key", func(s *scene) { s.want.Public = spki(s.t, ecKey(s.t, elliptic.P256()).Public()) },
			fault.KeyMismatch, attestation.ErrMismatch, "about another key than the one in slot 9a"},
		{"other serial", func(s *scene) { s.want.Serial++ },
			fault.KeyMismatch, attestation.ErrMismatch, "of card 12345678, not of card 12345679"},
		{"other slot", func(s *scene) { s.want.Slot = "9c" },
			fault.KeyMismatch, attestation.ErrMismatch, "about slot 9a, not about slot 9c"},
		{"other PIN policy", func(s *scene) { s.want.PINPolicy = keys.PolicyAlways },
			fault.KeyMismatch, attestation.ErrMismatch, "PIN policy is once, not always"},
		{"other touch policy", func(s *scene) { s.want.TouchPolicy = keys.PolicyCached },
			fault.KeyMismatch, attestation.ErrMismatch, "touch policy is always, not cached"},
		{"policy of a fingerprint reader", func(s *scene) { s.card.says(8, []byte{4, 2}) },
			fault.KeyMismatch, attestation.ErrMismatch, "PIN policy is match-once, not once"},
		{"other firmware", func(s *scene) { s.want.Firmware = "5.7.1" },
			fault.KeyMismatch, attestation.ErrMismatch, "of firmware 5.4.3, and the card reports 5.7.1"},
		{"key of a kind that is not used here", func(s *scene) { s.card.key = edKey(s.t) },
			fault.KeyMismatch, attestation.ErrMismatch, "about another key"},

		{"self-made f9 chain", func(s *scene) { s.roots = attestation.Genuine() },
			fault.KeyMismatch, attestation.ErrNotGenuine, "leads to no root that is trusted here"},
		{"f9 that signed itself", func(s *scene) { s.card = newCard(s.t, nil, ecKey(s.t, elliptic.P256()), s.card.key, nil) },
			fault.KeyMismatch, attestation.ErrNotGenuine, "leads to no root that is trusted here"},
		{"root of the same name", func(s *scene) {
			s.card = newCard(s.t, issue(s.t, "Test Root", nil, ecKey(s.t, elliptic.P256()), nil), ecKey(s.t, elliptic.P256()), s.card.key, nil)
		}, fault.KeyMismatch, attestation.ErrNotGenuine, "leads to no root that is trusted here"},
		{"no roots", func(s *scene) { s.roots = attestation.Roots{} },
			fault.KeyMismatch, attestation.ErrNotGenuine, "leads to no root that is trusted here"},
		{"f9 that is no authority", func(s *scene) {
			s.card = newCard(s.t, s.root, ecKey(s.t, elliptic.P256()), s.card.key, func(c *x509.Certificate) { c.IsCA = false })
		}, fault.KeyMismatch, attestation.ErrNotGenuine, "none that may sign statements"},
		{"f9 that does not say what it is, such as U2F's", func(s *scene) {
			s.card = newCard(s.t, s.root, ecKey(s.t, elliptic.P256()), s.card.key, func(c *x509.Certificate) { c.BasicConstraintsValid, c.IsCA = false, false })
		}, fault.KeyMismatch, attestation.ErrNotGenuine, "none that may sign statements"},
		{"f9 for something else", func(s *scene) {
			s.card = newCard(s.t, s.root, ecKey(s.t, elliptic.P256()), s.card.key, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature })
		}, fault.KeyMismatch, attestation.ErrNotGenuine, "none that may sign statements"},
		{"f9 certificate of another device", func(s *scene) {
			s.f9 = newCard(s.t, s.root, ecKey(s.t, elliptic.P256()), s.card.key, nil).f9.cert.Raw
		}, fault.KeyMismatch, nil, "was not signed by the key of the card's attestation certificate"},
		{"f9 certificate of another name with the same key", func(s *scene) {
			s.f9 = issue(s.t, "Another", s.root, s.card.f9.key, nil).cert.Raw
		}, fault.KeyMismatch, nil, "was not signed by the key of the card's attestation certificate"},

		{"expired statement", func(s *scene) { s.card.to = time.Now().Add(-time.Minute) },
			fault.KeyMismatch, attestation.ErrExpired, "the card's statement expired on "},
		{"statement of the future", func(s *scene) { s.card.from = time.Now().Add(time.Hour) },
			fault.KeyMismatch, attestation.ErrExpired, "the card's statement is not valid before "},
		{"expired f9", func(s *scene) {
			from, to := s.card.from, s.card.to
			s.card = newCard(s.t, s.root, ecKey(s.t, elliptic.P256()), s.card.key, ended)
			s.card.from, s.card.to = from, to
		}, fault.KeyMismatch, attestation.ErrExpired, "the card's attestation certificate expired on "},
		{"expired root", func(s *scene) {
			s.root = issue(s.t, "Old Root", nil, ecKey(s.t, elliptic.P256()), ended)
			s.trust(s.root)
			s.card = newCard(s.t, s.root, ecKey(s.t, elliptic.P256()), s.card.key, nil)
		}, fault.KeyMismatch, attestation.ErrExpired, `the authority "CN=Old Root" expired on `},
		{"expired authority between", func(s *scene) {
			middle := issue(s.t, "Intermediate", s.root, ecKey(s.t, elliptic.P256()), ended)
			s.roots = attestation.NewRoots(s.root.cert, middle.cert)
			s.card = newCard(s.t, middle, ecKey(s.t, elliptic.P256()), s.card.key, nil)
		}, fault.KeyMismatch, attestation.ErrExpired, `the authority "CN=Intermediate" expired on `},

		{"no statement", func(s *scene) { s.slot = []byte{} }, fault.BadRequest, nil, "statement is not a certificate"},
		{"no f9", func(s *scene) { s.f9 = []byte{} }, fault.BadRequest, nil, "has no attestation certificate in slot f9"},
		{"f9 that is no certificate", func(s *scene) { s.f9 = []byte("x") }, fault.BadRequest, nil, "attestation certificate is not a certificate"},
		{"something after the statement", func(s *scene) { s.slot = append(s.card.state(s.t), 0) }, fault.BadRequest, nil, "statement is not a certificate"},
		{"something after f9", func(s *scene) { s.f9 = append(s.card.f9.cert.Raw[:len(s.card.f9.cert.Raw):len(s.card.f9.cert.Raw)], 0) },
			fault.BadRequest, nil, "attestation certificate is not a certificate"},
		{"long statement", func(s *scene) { s.card.says(99, make([]byte, 4096)) }, fault.BadRequest, nil, "more than 4096"},
		{"long f9", func(s *scene) {
			s.card = newCard(s.t, s.root, ecKey(s.t, elliptic.P256()), s.card.key, func(c *x509.Certificate) {
				c.ExtraExtensions = []pkix.Extension{{Id: arc(99), Value: make([]byte, 4096)}}
			})
		}, fault.BadRequest, nil, "more than 4096"},
		{"critical extension in the statement", func(s *scene) {
			s.card.extensions = append(s.card.extensions, pkix.Extension{Id: arc(99), Critical: true, Value: []byte{1}})
		}, fault.BadRequest, nil, "statement has a critical extension"},
		{"critical extension in f9", func(s *scene) {
			s.card = newCard(s.t, s.root, ecKey(s.t, elliptic.P256()), s.card.key, func(c *x509.Certificate) {
				c.ExtraExtensions = []pkix.Extension{{Id: arc(99), Critical: true, Value: []byte{1}}}
			})
		}, fault.BadRequest, nil, "attestation certificate has a critical extension"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			c.change(s)
			got, err := s.verify()
			refused(t, got, err, c.kind, c.fact)
			for _, cause := range []error{attestation.ErrNotGenuine, attestation.ErrExpired, attestation.ErrMismatch, attestation.ErrWeak} {
				if errors.Is(err, cause) != (cause == c.cause) {
					t.Errorf("errors.Is(%v): %v", cause, err)
				}
			}
		})
	}
}

// refused wants no statement, an error of one kind, a fact in words, and a hint.
func refused(t *testing.T, got attestation.Statement, err error, kind fault.Kind, fact string) {
	t.Helper()
	if !reflect.DeepEqual(got, attestation.Statement{}) {
		t.Errorf("with the error came the statement %+v", got)
	}
	e, ok := fault.AsError(err)
	if !ok || e.Kind != kind || !strings.Contains(e.Message, fact) {
		t.Fatalf("got %q (%s), want %s and %q", err, fault.KindOf(err), kind, fact)
	}
	if e.Hint == "" {
		t.Errorf("%q has no hint", e.Message)
	}
}

// ended makes a certificate that was valid until yesterday.
func ended(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour)
}

func edKey(t testing.TB) crypto.PublicKey {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return public
}
