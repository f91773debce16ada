package tpm

import (
	"bytes"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// goodArea is the public area of a new ES256 key.
func goodArea(t testing.TB) tpm2.TPMTPublic {
	t.Helper()
	area, err := template(es256)
	if err != nil {
		t.Fatal(err)
	}
	return area
}

func TestTemplateAttributes(t *testing.T) {
	const plain, withPIN = 0x00040472, 0x00040072 // TPM 2.0 Part 2, section 8.3: noDA is bit 10
	for _, c := range []struct {
		asked keys.Template
		want  uint32
	}{
		{es256, plain},
		{pinned(false), withPIN},
		{keys.Template{Purpose: keys.TLSServer, Algorithm: keys.ES384}, plain},
		{keys.Template{Purpose: keys.TLSServer, Algorithm: keys.RS256, RSABits: 4096}, plain},
	} {
		area, err := template(c.asked)
		if err != nil {
			t.Fatal(err)
		}
		raw := tpm2.Marshal(area)[4:8]
		if got := uint32(raw[0])<<24 | uint32(raw[1])<<16 | uint32(raw[2])<<8 | uint32(raw[3]); got != c.want {
			t.Errorf("%v: got attributes %#x, want %#x", c.asked, got, c.want)
		}
		if free := freedoms(&area); len(free) != 0 {
			t.Errorf("%v: our own template has freedoms: %v", c.asked, free)
		}
		if err := checkSigner(&area); err != nil {
			t.Errorf("%v: our own template is refused: %v", c.asked, err)
		}
	}
}

func TestTemplateSchemes(t *testing.T) {
	for _, c := range []struct {
		asked keys.Template
		want  keys.Scheme
	}{
		{es256, keys.ECDSAP256SHA256},
		{keys.Template{Purpose: keys.ServiceAccount, Algorithm: keys.ES384}, keys.ECDSAP384SHA384},
		{keys.Template{Purpose: keys.TLSClient, Algorithm: keys.RS256}, keys.RSAPSSSHA256},
		{keys.Template{Purpose: keys.TLSServer, Algorithm: keys.RS256}, keys.RSAPSSSHA256},
		{keys.Template{Purpose: keys.ServiceAccount, Algorithm: keys.RS256}, keys.RSAPKCS1SHA256},
		{keys.Template{Purpose: keys.ClientAssertion, Algorithm: keys.RS256, RSABits: 3072}, keys.RSAPKCS1SHA256},
	} {
		area, err := template(c.asked)
		if err != nil {
			t.Fatal(err)
		}
		list, err := suitesOf(&area)
		if err != nil || len(list) != 1 || list[0].scheme != c.want {
			t.Errorf("%v: got %v, %v, want %q alone", c.asked, list, err, c.want)
		}
	}
	for _, bad := range []keys.Template{
		{Purpose: keys.TLSClient, Algorithm: "HS256"},
		{Purpose: keys.TLSClient},
		{Purpose: keys.TLSClient, Algorithm: keys.RS256, RSABits: 1024},
		{Purpose: keys.TLSClient, Algorithm: keys.RS256, RSABits: -1},
		{Purpose: keys.TLSClient, Algorithm: keys.RS256, RSABits: 2049},
	} {
		if _, err := template(bad); err == nil || fault.KindOf(err) == fault.Internal {
			t.Errorf("%v: got %v, want a named refusal", bad, err)
		}
	}
}

// TestCheckSigner starts from a good public area and changes one thing.
func TestCheckSigner(t *testing.T) {
	for name, change := range map[string]func(*tpm2.TPMTPublic){
		"does not sign":  func(a *tpm2.TPMTPublic) { a.ObjectAttributes.SignEncrypt = false },
		"restricted":     func(a *tpm2.TPMTPublic) { a.ObjectAttributes.Restricted = true },
		"no auth":        func(a *tpm2.TPMTPublic) { a.ObjectAttributes.UserWithAuth = false },
		"policy":         func(a *tpm2.TPMTPublic) { a.AuthPolicy.Buffer = make([]byte, 32) },
		"name by SHA-1":  func(a *tpm2.TPMTPublic) { a.NameAlg = tpm2.TPMAlgSHA1 },
		"name by SHA384": func(a *tpm2.TPMTPublic) { a.NameAlg = tpm2.TPMAlgSHA384 },
	} {
		area := goodArea(t)
		change(&area)
		if err := checkSigner(&area); fault.KindOf(err) != fault.Unsupported {
			t.Errorf("%s: got %v, want unsupported", name, err)
		}
	}
}

func TestFreedoms(t *testing.T) {
	for name, change := range map[string]func(*tpm2.TPMAObject){
		"not fixedTPM":            func(a *tpm2.TPMAObject) { a.FixedTPM = false },
		"not fixedParent":         func(a *tpm2.TPMAObject) { a.FixedParent = false },
		"not sensitiveDataOrigin": func(a *tpm2.TPMAObject) { a.SensitiveDataOrigin = false },
		"decrypt":                 func(a *tpm2.TPMAObject) { a.Decrypt = true },
	} {
		area := goodArea(t)
		change(&area.ObjectAttributes)
		if len(freedoms(&area)) != 1 {
			t.Errorf("%s: got %v, want one freedom", name, freedoms(&area))
		}
		if !mustDiffer(t, area) {
			t.Errorf("%s: sameKey does not see it", name)
		}
	}
}

// mustDiffer reports whether area is not what we ask for.
func mustDiffer(t *testing.T, area tpm2.TPMTPublic) bool {
	return !sameKey(goodArea(t), area)
}

func TestSuitesOf(t *testing.T) {
	ecc := func(curve tpm2.TPMECCCurve, scheme tpm2.TPMTECCScheme) tpm2.TPMTPublic {
		area := goodArea(t)
		area.Parameters = tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{CurveID: curve, Scheme: scheme})
		return area
	}
	rsa := func(scheme tpm2.TPMTRSAScheme) tpm2.TPMTPublic {
		area := goodArea(t)
		area.Type = tpm2.TPMAlgRSA
		area.Parameters = tpm2.NewTPMUPublicParms(tpm2.TPMAlgRSA, &tpm2.TPMSRSAParms{KeyBits: 2048, Scheme: scheme})
		return area
	}
	ecdsa := func(hash tpm2.TPMAlgID) tpm2.TPMTECCScheme {
		return tpm2.TPMTECCScheme{Scheme: tpm2.TPMAlgECDSA,
			Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgECDSA, &tpm2.TPMSSigSchemeECDSA{HashAlg: hash})}
	}
	null := tpm2.TPMTECCScheme{Scheme: tpm2.TPMAlgNull}
	for _, c := range []struct {
		name string
		area tpm2.TPMTPublic
		want []keys.Scheme
	}{
		{"P-256", ecc(tpm2.TPMECCNistP256, ecdsa(tpm2.TPMAlgSHA256)), []keys.Scheme{keys.ECDSAP256SHA256}},
		{"P-256 without scheme", ecc(tpm2.TPMECCNistP256, null), []keys.Scheme{keys.ECDSAP256SHA256}},
		{"P-384 without scheme", ecc(tpm2.TPMECCNistP384, null), []keys.Scheme{keys.ECDSAP384SHA384}},
		{"P-256 with SHA-384", ecc(tpm2.TPMECCNistP256, ecdsa(tpm2.TPMAlgSHA384)), nil},
		{"P-256 with SHA-1", ecc(tpm2.TPMECCNistP256, ecdsa(tpm2.TPMAlgSHA1)), nil},
		{"P-521", ecc(tpm2.TPMECCNistP521, null), nil},
		{"RSA without scheme", rsa(tpm2.TPMTRSAScheme{Scheme: tpm2.TPMAlgNull}), []keys.Scheme{keys.RSAPSSSHA256, keys.RSAPKCS1SHA256}},
		{"RSASSA with SHA-1", rsa(tpm2.TPMTRSAScheme{Scheme: tpm2.TPMAlgRSASSA,
			Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgRSASSA, &tpm2.TPMSSigSchemeRSASSA{HashAlg: tpm2.TPMAlgSHA1})}), nil},
	} {
		list, err := suitesOf(&c.area)
		if c.want == nil && fault.KindOf(err) != fault.Unsupported {
			t.Errorf("%s: got %v, %v, want unsupported", c.name, list, err)
		}
		if len(list) != len(c.want) {
			t.Fatalf("%s: got %v, want %v", c.name, list, c.want)
		}
		for i := range list {
			if list[i].scheme != c.want[i] {
				t.Errorf("%s: got %q, want %q", c.name, list[i].scheme, c.want[i])
			}
		}
	}
}

func TestSPKIOf(t *testing.T) {
	area := goodArea(t)
	point := func(x, y []byte) tpm2.TPMTPublic {
		a := area
		a.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{X: tpm2.TPM2BECCParameter{Buffer: x}, Y: tpm2.TPM2BECCParameter{Buffer: y}})
		return a
	}
	for name, a := range map[string]tpm2.TPMTPublic{
		"no point":         point(nil, nil),
		"off the curve":    point([]byte{1}, []byte{1}),
		"beyond the field": point(bytes.Repeat([]byte{0xff}, 40), bytes.Repeat([]byte{0xff}, 40)),
	} {
		if der, err := spkiOf(&a); err == nil {
			t.Errorf("%s: got %x", name, der)
		}
	}
}

// TestMadeKeyIsChecked damages what a device claims to have made.
func TestMadeKeyIsChecked(t *testing.T) {
	for _, c := range []struct {
		name   string
		cc     tpm2.TPMCC
		asked  keys.Template
		damage func([]byte)
		want   fault.Kind
	}{
		{"decrypting key", tpm2.TPMCCCreate, es256, flipAttribute(0x00020000), fault.KeyMismatch},
		{"key that may leave", tpm2.TPMCCCreate, es256, flipAttribute(0x00000002), fault.KeyMismatch},
		{"key that counts tries", tpm2.TPMCCCreate, es256, flipAttribute(0x00000400), fault.KeyMismatch},
		{"other name", tpm2.TPMCCLoad, es256, func(reply []byte) { reply[len(reply)-12] ^= 1 }, fault.KeyMismatch},
		{"other salt", tpm2.TPMCCSign, keys.Template{Purpose: keys.TLSClient, Algorithm: keys.RS256},
			func(reply []byte) { reply[40] ^= 1 }, fault.Unsupported},
	} {
		b, proxy, _ := behind(t, false)
		proxy.SetMutation(func(cc tpm2.TPMCC, reply []byte) []byte {
			if cc == c.cc {
				c.damage(reply)
			}
			return reply
		})
		_, err := b.Create(soon(t), c.asked)
		if got := fault.KindOf(err); got != c.want {
			t.Errorf("%s: got %q (%v), want %q", c.name, got, err, c.want)
		}
		proxy.SetMutation(nil)
		mustSign(t, b, create(t, b, es256), p256)
	}
}

// flipAttribute flips bits of the object attributes in a reply to TPM2_Create.
func flipAttribute(bits uint32) func([]byte) {
	return func(reply []byte) {
		at := bytes.Index(reply, []byte{0x00, 0x23, 0x00, 0x0b}) + 4 // TPM_ALG_ECC, TPM_ALG_SHA256
		for i := range 4 {
			reply[at+i] ^= byte(bits >> (24 - 8*i))
		}
	}
}
