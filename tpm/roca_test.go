package tpm

import (
	"crypto/rand"
	"crypto/rsa"
	"math/big"
	"testing"
)

// rocaModulus is a modulus of 2048 bits with the ROCA fingerprint, from the test
// data of those who found the flaw (crocs-muni/roca, mod03.txt).
const rocaModulus = "9dcd7420e420c270a68060eb8b5aa7457a9f6648f86fafed2775cc1f79ae962f1e63f1b9e51c55f9ea6fdc7332e9b005" +
	"8c9ff2eb1fc89855029cf6aafe21e689feb38ac9ffb12f1ce371bb5d0e9aae64161abce74b4244bf68f1edb4411f756a" +
	"097c8929c14740245ea355f8332d1aa36bb50c7dcb4505da8de02e4e53d38f8df06097da7524df0df93db48eac8cc4af" +
	"2d3a16257eb2b2adca6ba464e5974fa92550d31b1babf161e7692d00b86e3dd886ecab4abfbe1a8f8cc263ff4af55cdb" +
	"45f4249a5193925f5e983d762f0b6800943eb0267b08f42ed311ce1f5c86eacbc8ce4d3cb7a2fee1ef5641423a1cf411" +
	"4e5ecf50034a60a412523af9e6f4aa11"

func TestModulusWithROCAFingerprintIsRefused(t *testing.T) {
	weak, ok := new(big.Int).SetString(rocaModulus, 16)
	if !ok {
		t.Fatal("not a number")
	}
	if checkModulus(&rsa.PublicKey{N: weak, E: 65537}) == nil {
		t.Error("it was accepted")
	}
	next := new(big.Int).Add(weak, big.NewInt(2))
	if err := checkModulus(&rsa.PublicKey{N: next, E: 65537}); err != nil {
		t.Errorf("without the fingerprint: %v", err)
	}
}

func TestCheckModulus(t *testing.T) {
	sound, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkModulus(&sound.PublicKey); err != nil {
		t.Errorf("a key of crypto/rsa: %v", err)
	}
	for name, key := range map[string]*rsa.PublicKey{
		"1024 bits":  {N: new(big.Int).Lsh(big.NewInt(1), 1023), E: 65537},
		"exponent 3": {N: new(big.Int).Lsh(big.NewInt(1), 2047), E: 3},
		"zero":       {N: new(big.Int), E: 65537},
	} {
		if checkModulus(key) == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
