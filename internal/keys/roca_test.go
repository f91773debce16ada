package keys

import (
	"crypto/rand"
	"crypto/rsa"
	"math/big"
	"testing"
)

// rocaModulus makes a number of the form that Infineon's library gave moduli:
// a power of 65537 modulo the product of the small primes.
func rocaModulus(t *testing.T) *big.Int {
	t.Helper()
	product := big.NewInt(1)
	for _, p := range rocaPrimes() {
		product.Mul(product, new(big.Int).SetUint64(p))
	}
	a, err := rand.Int(rand.Reader, product)
	if err != nil {
		t.Fatal(err)
	}
	k, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 1800))
	if err != nil {
		t.Fatal(err)
	}
	n := new(big.Int).Exp(big.NewInt(65537), a, product)
	return n.Add(n, k.Mul(k, product))
}

func TestROCA(t *testing.T) {
	for range 20 {
		n := rocaModulus(t)
		if !ROCA(n) {
			t.Errorf("%x: a weak modulus was not found", n)
		}
		if ROCA(new(big.Int).Add(n, big.NewInt(2))) {
			t.Errorf("%x + 2: a sound modulus was refused", n)
		}
	}
	for range 5 {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		if ROCA(key.N) {
			t.Errorf("%x, a modulus of crypto/rsa, was refused", key.N)
		}
	}
}

// A modulus that the discoverers of ROCA publish with their own detector, as
// one that it must find (crocs-muni/roca, roca/tests/data/mod03.txt).
func TestROCAFindsThePublishedModulus(t *testing.T) {
	const published = "9dcd7420e420c270a68060eb8b5aa7457a9f6648f86fafed2775cc1f79ae962f1e63f1b9e51c55f9ea6fdc7332e9b005" +
		"8c9ff2eb1fc89855029cf6aafe21e689feb38ac9ffb12f1ce371bb5d0e9aae64161abce74b4244bf68f1edb4411f756a" +
		"097c8929c14740245ea355f8332d1aa36bb50c7dcb4505da8de02e4e53d38f8df06097da7524df0df93db48eac8cc4af" +
		"2d3a16257eb2b2adca6ba464e5974fa92550d31b1babf161e7692d00b86e3dd886ecab4abfbe1a8f8cc263ff4af55cdb" +
		"45f4249a5193925f5e983d762f0b6800943eb0267b08f42ed311ce1f5c86eacbc8ce4d3cb7a2fee1ef5641423a1cf411" +
		"4e5ecf50034a60a412523af9e6f4aa11"
	n, ok := new(big.Int).SetString(published, 16)
	if !ok || n.BitLen() != 2048 {
		t.Fatal("not a modulus of 2048 bits")
	}
	if !ROCA(n) {
		t.Error("the published modulus was not found")
	}
}

func TestROCAOfWhatIsNoModulus(t *testing.T) {
	for _, n := range []*big.Int{new(big.Int), big.NewInt(3), big.NewInt(-3)} {
		if ROCA(n) {
			t.Errorf("%s has the fingerprint", n)
		}
	}
}
