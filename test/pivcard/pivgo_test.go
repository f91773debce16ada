package pivcard_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"os"
	"testing"
	"time"

	"github.com/go-piv/piv-go/v2/piv"

	"holdfast/test/pivcard"
)

var digest = sha256.Sum256([]byte("text"))

// open opens the card with piv-go. libpcsclite reads its socket's path from the
// environment of the process once: one rig serves all tests that come here.
func open(t testing.TB, rig *pivcard.Rig, c *pivcard.Card) *piv.YubiKey {
	t.Helper()
	t.Setenv("PCSCLITE_CSOCK_NAME", rig.Socket())
	yk, err := piv.Open(rig.ReaderOf(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { yk.Close() })
	return yk
}

// TestPIVGo has a card of its own for each part, on one rig.
func TestPIVGo(t *testing.T) {
	rig := pivcard.Start(t, 2)
	for _, part := range []struct {
		name string
		o    pivcard.Options
		f    func(*testing.T, *pivcard.Rig, *pivcard.Card, *piv.YubiKey)
	}{
		{"generate, sign, attest", pivcard.Options{Serial: 4711}, testAttest},
		{"algorithms", pivcard.Options{Firmware: pivcard.Firmware{5, 7, 1}}, testAlgorithms},
		{"PIN and PUK", pivcard.Options{}, testPINs},
		{"management key", pivcard.Options{}, testManagement},
		{"certificate and metadata", pivcard.Options{}, testObjects},
		{"imported", pivcard.Options{}, testImported},
		{"touch", pivcard.Options{TouchTimeout: 50 * time.Millisecond}, testTouch},
		{"old", pivcard.Options{Serial: 9, Firmware: pivcard.Firmware{4, 3, 7}}, testOld},
	} {
		t.Run(part.name, func(t *testing.T) {
			c := rig.NewCard(part.o)
			rig.Insert(c)
			defer rig.Remove(c)
			part.f(t, rig, c, open(t, rig, c))
		})
	}
}

func generate(t *testing.T, yk *piv.YubiKey, slot piv.Slot, k piv.Key) crypto.PublicKey {
	t.Helper()
	pub, err := yk.GenerateKey(piv.DefaultManagementKey, slot, k)
	if err != nil {
		t.Fatal(err)
	}
	return pub
}

// sign signs digest.
func sign(yk *piv.YubiKey, slot piv.Slot, pub crypto.PublicKey, auth piv.KeyAuth) ([]byte, error) {
	private, err := yk.PrivateKey(slot, pub, auth)
	if err != nil {
		return nil, err
	}
	return private.(crypto.Signer).Sign(rand.Reader, digest[:], crypto.SHA256)
}

// mustSign is sign with a signature that has to be good.
func mustSign(t *testing.T, yk *piv.YubiKey, slot piv.Slot, pub crypto.PublicKey, auth piv.KeyAuth) {
	t.Helper()
	signature, err := sign(yk, slot, pub, auth)
	if err != nil {
		t.Fatal(err)
	}
	good := false
	switch p := pub.(type) {
	case *ecdsa.PublicKey:
		good = ecdsa.VerifyASN1(p, digest[:], signature)
	case *rsa.PublicKey:
		good = rsa.VerifyPKCS1v15(p, crypto.SHA256, digest[:], signature) == nil
	}
	if !good {
		t.Errorf("%T: the signature does not verify", pub)
	}
}

func testAttest(t *testing.T, rig *pivcard.Rig, c *pivcard.Card, yk *piv.YubiKey) {
	if serial, err := yk.Serial(); err != nil || serial != 4711 {
		t.Errorf("serial %d, %v", serial, err)
	}
	pub := generate(t, yk, piv.SlotAuthentication, piv.Key{Algorithm: piv.AlgorithmEC256, PINPolicy: piv.PINPolicyOnce, TouchPolicy: piv.TouchPolicyNever})
	mustSign(t, yk, piv.SlotAuthentication, pub, piv.KeyAuth{PIN: piv.DefaultPIN})
	mustSign(t, yk, piv.SlotAuthentication, pub, piv.KeyAuth{PIN: piv.DefaultPIN})
	if got := c.PINTries(); got != 1 {
		t.Errorf("%d PIN tries, want 1", got)
	}
	device, err := yk.AttestationCertificate()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := yk.Attest(piv.SlotAuthentication)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(rig.RootFile())
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatal(err)
	}
	verifier := piv.Verifier{Roots: roots}
	a, err := verifier.Verify(device, cert)
	if err != nil {
		t.Fatal(err)
	}
	want := piv.Attestation{Version: piv.Version{Major: 5, Minor: 4, Patch: 3}, Serial: 4711,
		Formfactor: piv.FormfactorUSBCKeychain, PINPolicy: piv.PINPolicyOnce,
		TouchPolicy: piv.TouchPolicyNever, Slot: piv.SlotAuthentication}
	if *a != want {
		t.Errorf("attestation %+v, want %+v", *a, want)
	}
	if _, err := piv.Verify(device, cert); err == nil {
		t.Error("Yubico has certified this card")
	}
	if f, err := yk.FormFactor(); err != nil || f != piv.FormfactorUSBCKeychain {
		t.Errorf("form factor %v, %v", f, err)
	}
}

func testAlgorithms(t *testing.T, _ *pivcard.Rig, _ *pivcard.Card, yk *piv.YubiKey) {
	slot, _ := piv.RetiredKeyManagementSlot(0x95)
	for _, alg := range []piv.Algorithm{piv.AlgorithmEC256, piv.AlgorithmEC384, piv.AlgorithmRSA2048, piv.AlgorithmRSA3072} {
		pub := generate(t, yk, slot, piv.Key{Algorithm: alg, PINPolicy: piv.PINPolicyAlways, TouchPolicy: piv.TouchPolicyNever})
		mustSign(t, yk, slot, pub, piv.KeyAuth{PIN: piv.DefaultPIN})
		info, err := yk.KeyInfo(slot)
		if err != nil || info.Algorithm != alg || info.PINPolicy != piv.PINPolicyAlways || info.Origin != piv.OriginGenerated ||
			!info.PublicKey.(interface{ Equal(crypto.PublicKey) bool }).Equal(pub) {
			t.Errorf("algorithm %d: %+v, %v", alg, info, err)
		}
	}
	pub := generate(t, yk, slot, piv.Key{Algorithm: piv.AlgorithmEC256, PINPolicy: piv.PINPolicyNever, TouchPolicy: piv.TouchPolicyNever})
	private, err := yk.PrivateKey(slot, pub, piv.KeyAuth{})
	if err != nil {
		t.Fatal(err)
	}
	mine, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := private.(*piv.ECDSAPrivateKey).SharedKey(&mine.PublicKey); err != nil {
		t.Error(err)
	}
}

func testPINs(t *testing.T, _ *pivcard.Rig, c *pivcard.Card, yk *piv.YubiKey) {
	if n, err := yk.Retries(); err != nil || n != 3 {
		t.Errorf("%d tries, %v", n, err)
	}
	var auth piv.AuthErr
	if err := yk.VerifyPIN("000000"); !errors.As(err, &auth) || auth.Retries != 2 {
		t.Errorf("a wrong PIN: %v", err)
	}
	for _, step := range []error{
		yk.SetPIN(piv.DefaultPIN, "271828"), yk.VerifyPIN("271828"), yk.SetPUK(piv.DefaultPUK, "31415926"),
		yk.Unblock("31415926", "161803"), yk.VerifyPIN("161803"), yk.SetRetries(piv.DefaultManagementKey, "161803", 5, 4),
		yk.VerifyPIN(piv.DefaultPIN),
	} {
		if step != nil {
			t.Error(step)
		}
	}
	c.SetPINLeft(0)
	if err := yk.VerifyPIN(piv.DefaultPIN); !errors.As(err, &auth) || auth.Retries != 0 {
		t.Errorf("a blocked PIN: %v", err)
	}
	if err := yk.Reset(); err != nil || c.PINLeft() != 3 || c.PUKLeft() != 3 {
		t.Errorf("reset: %v, %d and %d tries left", err, c.PINLeft(), c.PUKLeft())
	}
}

func testManagement(t *testing.T, _ *pivcard.Rig, _ *pivcard.Card, yk *piv.YubiKey) {
	key := piv.DefaultManagementKey
	for _, n := range []int{16, 24, 32} {
		next := bytes.Repeat([]byte{byte(n)}, n)
		if err := yk.SetManagementKey(key, next); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if err := yk.SetManagementKey(key, next); err == nil {
			t.Errorf("%d bytes: the old key is still good", n)
		}
		key = next
	}
	if err := yk.SetMetadata(key, &piv.Metadata{}); err != nil {
		t.Error(err)
	}
	if _, err := yk.Metadata(piv.DefaultPIN); err != nil {
		t.Error(err)
	}
}

func testObjects(t *testing.T, _ *pivcard.Rig, _ *pivcard.Card, yk *piv.YubiKey) {
	if _, err := yk.Certificate(piv.SlotSignature); !errors.Is(err, piv.ErrNotFound) {
		t.Errorf("an empty slot: %v", err)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: string(make([]byte, 1000))}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	if err := yk.SetCertificate(piv.DefaultManagementKey, piv.SlotSignature, cert); err != nil {
		t.Fatal(err)
	}
	if got, err := yk.Certificate(piv.SlotSignature); err != nil || !got.Equal(cert) {
		t.Errorf("another certificate comes back: %v", err)
	}
}

func testImported(t *testing.T, _ *pivcard.Rig, _ *pivcard.Card, yk *piv.YubiKey) {
	policy := piv.Key{PINPolicy: piv.PINPolicyOnce, TouchPolicy: piv.TouchPolicyNever}
	own, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	if err := yk.SetPrivateKeyInsecure(piv.DefaultManagementKey, piv.SlotKeyManagement, own, policy); err != nil {
		t.Fatal(err)
	}
	mustSign(t, yk, piv.SlotKeyManagement, own.Public(), piv.KeyAuth{PIN: piv.DefaultPIN})
	if info, err := yk.KeyInfo(piv.SlotKeyManagement); err != nil || info.Origin != piv.OriginImported {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := yk.Attest(piv.SlotKeyManagement); !errors.Is(err, piv.ErrNotFound) {
		t.Errorf("attestation of an imported key: %v", err)
	}
}

func testTouch(t *testing.T, _ *pivcard.Rig, c *pivcard.Card, yk *piv.YubiKey) {
	pub := generate(t, yk, piv.SlotCardAuthentication, piv.Key{Algorithm: piv.AlgorithmEC256, PINPolicy: piv.PINPolicyNever, TouchPolicy: piv.TouchPolicyAlways})
	if _, err := sign(yk, piv.SlotCardAuthentication, pub, piv.KeyAuth{}); err == nil || len(c.Blinks()) != 1 {
		t.Errorf("signed without a touch: %v; asked %d times", err, len(c.Blinks()))
	}
	c.TouchAfter(time.Millisecond)
	mustSign(t, yk, piv.SlotCardAuthentication, pub, piv.KeyAuth{})
}

func testOld(t *testing.T, _ *pivcard.Rig, _ *pivcard.Card, yk *piv.YubiKey) {
	if serial, err := yk.Serial(); err != nil || serial != 9 {
		t.Errorf("serial %d, %v", serial, err)
	}
	pub := generate(t, yk, piv.SlotAuthentication, piv.Key{Algorithm: piv.AlgorithmEC256, PINPolicy: piv.PINPolicyOnce, TouchPolicy: piv.TouchPolicyNever})
	mustSign(t, yk, piv.SlotAuthentication, pub, piv.KeyAuth{PIN: piv.DefaultPIN})
	if _, err := yk.KeyInfo(piv.SlotAuthentication); err == nil {
		t.Error("firmware 4 has metadata")
	}
}

// BenchmarkRoundTrip is one APDU there and back, through pcscd.
func BenchmarkRoundTrip(b *testing.B) {
	rig := pivcard.Start(b, 1)
	c := rig.NewCard(pivcard.Options{})
	rig.Insert(c)
	yk := open(b, rig, c)
	for b.Loop() {
		if _, err := yk.Serial(); err != nil {
			b.Fatal(err)
		}
	}
}
