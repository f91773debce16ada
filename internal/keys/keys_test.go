package keys_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// The list of kinds crosses the wire: kinds are added at its end and never
// renamed, moved or removed.
func TestKindsAreAppendOnly(t *testing.T) {
	golden, err := os.ReadFile("testdata/kinds")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range fault.Kinds() {
		got = append(got, string(k))
	}
	if want := strings.Fields(string(golden)); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %v\nwant %v\nadd new kinds to the end of both lists", got, want)
	}
}

func TestCheckName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "laptop": true, "node-1": true, "a_b": true, "0": true, "prod.2": true, "prod.999999": true,
		strings.Repeat("a", keys.MaxName): true,
		"":                                false, "A": false, "a b": false, "-a": false, "a-": false, "_a": false, "a.": false, ".1": false,
		"a.0": false, "a.01": false, "a.1.2": false, "a.x": false, "a.1000000": false, "..": false, "a/b": false, "a\x00": false,
		"a\n": false, "ä": false, strings.Repeat("a", keys.MaxName+1): false,
	} {
		err := keys.CheckName(name)
		if (err == nil) != want {
			t.Errorf("%q: got %v, want valid %v", name, err, want)
		}
		if err != nil && fault.KindOf(err) != fault.BadRequest {
			t.Errorf("%q: got kind %q, want bad-request", name, fault.KindOf(err))
		}
	}
}

func TestSetOf(t *testing.T) {
	for name, want := range map[string]string{"prod": "prod", "prod.2": "prod"} {
		if got := keys.SetOf(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

func TestCheckPIN(t *testing.T) {
	for pin, want := range map[string]bool{
		"1234": true, "12345678901234567890123456789012": true,
		"": false, "123": false, "123456789012345678901234567890123": false, "12\x0034": false, "1234\x00": false,
	} {
		if err := keys.CheckPIN([]byte(pin)); (err == nil) != want {
			t.Errorf("%q: got %v, want valid %v", pin, err, want)
		}
	}
}

func TestWordsParseBack(t *testing.T) {
	for _, p := range keys.Purposes() {
		if got, err := keys.ParsePurpose(string(p)); got != p || err != nil {
			t.Errorf("purpose %q: got %q, %v", p, got, err)
		}
	}
	for _, a := range keys.Algorithms() {
		if got, err := keys.ParseAlgorithm(string(a)); got != a || err != nil {
			t.Errorf("algorithm %q: got %q, %v", a, got, err)
		}
	}
	_, purpose := keys.ParsePurpose("TLS-client")
	_, algorithm := keys.ParseAlgorithm("es256")
	for _, err := range []error{purpose, algorithm} {
		if fault.KindOf(err) != fault.BadRequest {
			t.Errorf("got %v, want bad-request", err)
		}
	}
}

func TestErrorKeepsItsCause(t *testing.T) {
	cause := errors.New("cause")
	err := fmt.Errorf("outer: %w", &fault.Error{Kind: fault.Busy, Message: "busy", RetryAfter: time.Second, Err: cause})
	if !errors.Is(err, cause) || !errors.Is(err, &fault.Error{Kind: fault.Busy}) || errors.Is(err, &fault.Error{Kind: fault.Denied}) {
		t.Errorf("errors.Is does not see through %v", err)
	}
	if got := fault.KindOf(err); got != fault.Busy {
		t.Errorf("got %q, want busy", got)
	}
	if got := fault.KindOf(cause); got != fault.Internal {
		t.Errorf("a nameless error: got %q, want internal", got)
	}
	if got := fault.KindOf(nil); got != "" {
		t.Errorf("no error: got %q, want none", got)
	}
}

// signer is a software key of one scheme.
type signer struct {
	scheme keys.Scheme
	key    crypto.Signer
}

func signers(t testing.TB) []signer {
	t.Helper()
	p256, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p384, err2 := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	r, err3 := rsa.GenerateKey(rand.Reader, 2048)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return []signer{{keys.ECDSAP256SHA256, p256}, {keys.ECDSAP384SHA384, p384}, {keys.RSAPSSSHA256, r}, {keys.RSAPKCS1SHA256, r}}
}

// A signature verifies under its own key and scheme, and under no other.
func TestVerify(t *testing.T) {
	all := signers(t)
	for i, s := range all {
		digest := s.scheme.Digest([]byte("a message"))
		signature, err := s.key.Sign(rand.Reader, digest, s.scheme.SignerOpts())
		if err != nil {
			t.Fatal(err)
		}
		for j, other := range all {
			err := keys.Verify(other.key.Public(), other.scheme, other.scheme.Digest([]byte("a message")), signature)
			if (err == nil) != (i == j) {
				t.Errorf("%s verified as %s: %v", s.scheme, other.scheme, err)
			}
		}
		digest[0] ^= 1
		if err := keys.Verify(s.key.Public(), s.scheme, digest, signature); fault.KindOf(err) != fault.KeyMismatch {
			t.Errorf("%s over another digest: got %v, want key-mismatch", s.scheme, err)
		}
	}
}

// TLS wants salts as long as the hash.
func TestVerifyWantsTheSaltOfTLS(t *testing.T) {
	r := signers(t)[2]
	digest := r.scheme.Digest([]byte("a message"))
	signature, err := r.key.Sign(rand.Reader, digest, &rsa.PSSOptions{SaltLength: 20, Hash: crypto.SHA256})
	if err != nil {
		t.Fatal(err)
	}
	if err := keys.Verify(r.key.Public(), r.scheme, digest, signature); err == nil {
		t.Error("a salt of 20 bytes was accepted")
	}
}

func TestSchemeFor(t *testing.T) {
	for _, c := range []struct {
		algorithm keys.Algorithm
		purpose   keys.Purpose
		want      keys.Scheme
	}{
		{keys.ES256, keys.TLSClient, keys.ECDSAP256SHA256},
		{keys.ES256, keys.ServiceAccount, keys.ECDSAP256SHA256},
		{keys.ES384, keys.TLSServer, keys.ECDSAP384SHA384},
		{keys.RS256, keys.TLSClient, keys.RSAPSSSHA256},
		{keys.RS256, keys.TLSServer, keys.RSAPSSSHA256},
		{keys.RS256, keys.ServiceAccount, keys.RSAPKCS1SHA256},
		{"PS256", keys.TLSClient, ""},
	} {
		if got, err := keys.SchemeFor(c.algorithm, c.purpose); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s for %s: got %q, %v, want %q", c.algorithm, c.purpose, got, err, c.want)
		}
	}
}

func TestParsePublicRefusesOtherKeys(t *testing.T) {
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ed, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, public := range map[string]crypto.PublicKey{"P-224": p224.Public(), "Ed25519": ed} {
		der, err := x509.MarshalPKIXPublicKey(public)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := keys.ParsePublic(der); fault.KindOf(err) != fault.Unsupported {
			t.Errorf("%s: got %v, want unsupported", name, err)
		}
	}
}

func FuzzParsePublic(f *testing.F) {
	seeds := 0
	for _, s := range signers(f) {
		der, err := x509.MarshalPKIXPublicKey(s.key.Public())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(der)
		seeds++
	}
	if seeds == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, der []byte) {
		public, err := keys.ParsePublic(der)
		if err != nil {
			return
		}
		if _, _, err := keys.AlgorithmOf(public); err != nil {
			t.Errorf("a key was taken that has no algorithm: %v", err)
		}
	})
}
