package attestation_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"holdfast/internal/keys"
	"holdfast/piv/attestation"
)

// pemFile returns the certificates of a file, DER.
func pemFile(t testing.TB, path ...string) [][]byte {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	var list [][]byte
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		list = append(list, block.Bytes)
	}
	if len(list) == 0 {
		t.Fatalf("%v: no certificate", path)
	}
	return list
}

// A sample is what a genuine YubiKey has said about a key in its slot 9a.
type sample struct {
	file string
	want attestation.Statement // but for the key
}

// samples are published ones: at least one for each of Yubico's roots.
func samples() []sample {
	return []sample{
		{"yubikey5-piv-root.pem", attestation.Statement{
			Serial: 15732500, PINPolicy: keys.PolicyOnce, TouchPolicy: keys.PolicyNever,
			Firmware: attestation.Firmware{Major: 5, Minor: 4, Patch: 3}, FormFactor: 4, Root: "CN=Yubico PIV Root CA Serial 263751",
		}},
		{"yubikey4-piv-root.pem", attestation.Statement{ // RSA; f9 without basic constraints, and of another firmware
			Serial: 5970478, PINPolicy: keys.PolicyAlways, TouchPolicy: keys.PolicyNever,
			Firmware: attestation.Firmware{Major: 4, Minor: 3, Patch: 5}, Root: "CN=Yubico PIV Root CA Serial 263751",
		}},
		{"yubikey4-u2f-root.pem", attestation.Statement{ // no serial number; f9 without basic constraints
			PINPolicy: keys.PolicyOnce, TouchPolicy: keys.PolicyNever,
			Firmware: attestation.Firmware{Major: 4, Minor: 3, Patch: 7}, Root: "CN=Yubico U2F Root CA Serial 457200631",
		}},
		{"yubikey5-root-1.pem", attestation.Statement{ // RSA; two authorities between root and f9
			Serial: 32718477, PINPolicy: keys.PolicyAlways, TouchPolicy: keys.PolicyNever,
			Firmware: attestation.Firmware{Major: 5, Minor: 7, Patch: 4}, FormFactor: 4, Root: "CN=Yubico Attestation Root 1",
		}},
	}
}

// read returns the sample's certificates, and what its owner would expect.
func (s sample) read(t testing.TB) (slot, f9 []byte, want attestation.Expected) {
	t.Helper()
	certs := pemFile(t, "testdata", s.file)
	if len(certs) != 2 {
		t.Fatalf("%s: %d certificates", s.file, len(certs))
	}
	cert, err := x509.ParseCertificate(certs[0])
	if err != nil {
		t.Fatal(err)
	}
	return certs[0], certs[1], attestation.Expected{
		Public: cert.RawSubjectPublicKeyInfo, Serial: max(s.want.Serial, 1), Slot: "9a",
		PINPolicy: s.want.PINPolicy, TouchPolicy: s.want.TouchPolicy, Firmware: s.want.Firmware.String(),
	}
}

func TestGenuineYubiKeysAreAccepted(t *testing.T) {
	roots := map[string]bool{}
	for _, s := range samples() {
		slot, f9, expected := s.read(t)
		s.want.Public, s.want.Slot = expected.Public, "9a"
		got, err := attestation.Verify(slot, f9, attestation.Genuine(), expected)
		if err != nil || !reflect.DeepEqual(got, s.want) {
			t.Errorf("%s: got %+v, %v\nwant %+v", s.file, got, err, s.want)
		}
		roots[got.Root] = true

		s.want.Root = ""
		if got, err := attestation.ParseStatement(slot); err != nil || !reflect.DeepEqual(got, s.want) {
			t.Errorf("%s: parsed %+v, %v\nwant %+v", s.file, got, err, s.want)
		}
	}
	if len(roots) != 3 {
		t.Errorf("led to %d roots, want all three", len(roots))
	}
}

// The certificates are what Yubico publishes: fingerprints as several other
// programs have pinned them.
func TestGenuineCertificatesAreYubicos(t *testing.T) {
	for file, want := range map[string][]string{
		"roots.pem": {
			"63ece914e54dd87915f34033c85af4c0696ba1512f8add66ced738331207b546", // PIV Root CA Serial 263751
			"0fa1386f80eb8713263ae5c1d84deb455bdf08aea50ab05503cefee82b092d42", // U2F Root CA Serial 457200631
			"62760c6a6ef91679f454c8902b80fd009825b3f25da90f1fbace2ec6586cd5a8", // Attestation Root 1
		},
		"intermediates.pem": {
			"4698a1d3389c3ec60016c216250f1d0439922832d65142327436376dc2942b55", // Attestation Intermediate A 1
			"d4cc3f456fdaf4e7812a21aab1dfe9d8e27d24e2fd2d6f21c9940109f0daa754", // Attestation Intermediate B 1
			"6de693f05376f5d8ca29069261e1c8626c75d503bd2edbfd75354cad1f722870", // PIV Attestation A 1
			"2d55b7998f4e42569d6d8fa382b6dc77d1dacf07358b19701163892922b17052", // PIV Attestation B 1
			"0c90b7d184a36edf50a35f9be935f0c5689bfdcfe5bdd073366cafb49061a440", // PIV Attestation B2 1
		},
	} {
		var got []string
		for _, der := range pemFile(t, "certs", file) {
			sum := sha256.Sum256(der)
			got = append(got, hex.EncodeToString(sum[:]))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v\nwant %v", file, got, want)
		}
	}
}

// A new YubiKey may have been made by any of the authorities in between, so each
// leads to its root.
func TestGenuineAuthoritiesLeadToTheRoot(t *testing.T) {
	roots := x509.NewCertPool()
	root, err := x509.ParseCertificate(pemFile(t, "certs", "roots.pem")[2])
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(root)
	between := x509.NewCertPool()
	for _, der := range pemFile(t, "certs", "intermediates.pem") {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		between.AddCert(cert)
		options := x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
		if _, err := cert.Verify(options); err != nil {
			t.Errorf("%s: %v", cert.Subject, err)
		}
	}
}

// The certificates of two YubiKeys that were both made by Yubico do not make one
// statement, and the certificates of authorities are none about keys.
func TestGenuinePartsDoNotMix(t *testing.T) {
	slot, f9, want := samples()[0].read(t)
	_, another, _ := samples()[1].read(t)
	_, fromU2F, _ := samples()[2].read(t)
	between := pemFile(t, "certs", "intermediates.pem")
	for name, pair := range map[string][2][]byte{
		"f9 of another":                  {slot, another},
		"f9 of another root":             {slot, fromU2F},
		"f9 as statement of its root":    {f9, pemFile(t, "certs", "roots.pem")[0]},
		"authority as statement":         {between[2], between[0]},
		"statement as f9":                {slot, slot},
		"the two the wrong way round":    {f9, slot},
		"root as statement about itself": {pemFile(t, "certs", "roots.pem")[0], pemFile(t, "certs", "roots.pem")[0]},
	} {
		if got, err := attestation.Verify(pair[0], pair[1], attestation.Genuine(), want); err == nil || got.Slot != "" {
			t.Errorf("%s: got %+v, want it refused", name, got)
		}
	}
}

// No bit of a genuine statement can be changed.
func TestGenuineStatementCannotBeChanged(t *testing.T) {
	for _, s := range samples() {
		slot, f9, want := s.read(t)
		want.PINPolicy, want.TouchPolicy = attestation.AnyPolicy, attestation.AnyPolicy
		for _, der := range [][]byte{slot, f9} {
			for i := range der {
				der[i] ^= 1 << (i % 8)
				if got, err := attestation.Verify(slot, f9, attestation.Genuine(), want); err == nil {
					t.Fatalf("%s with byte %d changed: accepted as %+v", s.file, i, got)
				}
				der[i] ^= 1 << (i % 8)
			}
		}
	}
}
