package pivcard_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"os"
	"testing"

	"github.com/go-piv/piv-go/v2/piv"

	"holdfast/test/pivcard"
)

// open opens the card with piv-go. libpcsclite reads its socket's path from the
// environment of the process once, so tests that use it run one at a time.
func open(t *testing.T, rig *pivcard.Rig, c *pivcard.Card) *piv.YubiKey {
	t.Helper()
	t.Setenv("PCSCLITE_CSOCK_NAME", rig.Socket())
	yk, err := piv.Open(rig.ReaderOf(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { yk.Close() })
	return yk
}

// TestPIVGo has one rig for all its parts: see open.
func TestPIVGo(t *testing.T) {
	rig := pivcard.Start(t, 2)
	t.Run("generate, sign, attest", func(t *testing.T) { testAttest(t, rig) })
	t.Run("RSA", func(t *testing.T) { testRSA(t, rig) })
}

func testAttest(t *testing.T, rig *pivcard.Rig) {
	c := rig.NewCard(pivcard.Options{Serial: 4711})
	rig.Insert(c)
	defer rig.Remove(c)
	yk := open(t, rig, c)
	if serial, err := yk.Serial(); err != nil || serial != 4711 {
		t.Errorf("serial %d, %v", serial, err)
	}
	pub, err := yk.GenerateKey(piv.DefaultManagementKey, piv.SlotAuthentication, piv.Key{
		Algorithm: piv.AlgorithmEC256, PINPolicy: piv.PINPolicyOnce, TouchPolicy: piv.TouchPolicyNever})
	if err != nil {
		t.Fatal(err)
	}
	private, err := yk.PrivateKey(piv.SlotAuthentication, pub, piv.KeyAuth{PIN: piv.DefaultPIN})
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256([]byte("text"))
	sig, err := private.(crypto.Signer).Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	if !ecdsa.VerifyASN1(pub.(*ecdsa.PublicKey), digest[:], sig) {
		t.Error("the signature does not verify")
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
	if got := c.PINTries(); got != 1 {
		t.Errorf("%d PIN tries, want 1", got)
	}
}

func testRSA(t *testing.T, rig *pivcard.Rig) {
	c := rig.NewCard(pivcard.Options{})
	rig.Insert(c)
	defer rig.Remove(c)
	yk := open(t, rig, c)
	pub, err := yk.GenerateKey(piv.DefaultManagementKey, piv.SlotCardAuthentication, piv.Key{
		Algorithm: piv.AlgorithmRSA2048, PINPolicy: piv.PINPolicyNever, TouchPolicy: piv.TouchPolicyNever})
	if err != nil {
		t.Fatal(err)
	}
	private, err := yk.PrivateKey(piv.SlotCardAuthentication, pub, piv.KeyAuth{})
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256([]byte("text"))
	sig, err := private.(crypto.Signer).Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	if err := rsa.VerifyPKCS1v15(pub.(*rsa.PublicKey), crypto.SHA256, digest[:], sig); err != nil {
		t.Error(err)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	rig := pivcard.Start(b, 1)
	c := rig.NewCard(pivcard.Options{})
	rig.Insert(c)
	b.Setenv("PCSCLITE_CSOCK_NAME", rig.Socket())
	yk, err := piv.Open(rig.ReaderOf(c))
	if err != nil {
		b.Fatal(err)
	}
	defer yk.Close()
	for b.Loop() {
		if _, err := yk.Serial(); err != nil {
			b.Fatal(err)
		}
	}
}
