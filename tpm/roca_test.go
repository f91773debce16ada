package tpm

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

func TestROCAFingerprint(t *testing.T) {
	for range 20 {
		n := rocaModulus(t)
		if !rocaFingerprint(n) {
			t.Errorf("%x: a weak modulus was not found", n)
		}
		if rocaFingerprint(new(big.Int).Add(n, big.NewInt(2))) {
			t.Errorf("%x + 2: a sound modulus was refused", n)
		}
	}
	for range 5 {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		if rocaFingerprint(key.N) {
			t.Error("the modulus of crypto/rsa was refused")
		}
		if err := checkModulus(&key.PublicKey); err != nil {
			t.Error(err)
		}
	}
}

func TestCheckModulus(t *testing.T) {
	weak := rocaModulus(t)
	for weak.BitLen() != 2048 {
		weak = rocaWithBits(t, 2048)
	}
	for name, key := range map[string]*rsa.PublicKey{
		"ROCA":       {N: weak, E: 65537},
		"1024 bits":  {N: new(big.Int).Lsh(big.NewInt(1), 1023), E: 65537},
		"exponent 3": {N: new(big.Int).Lsh(big.NewInt(1), 2047), E: 3},
		"zero":       {N: new(big.Int), E: 65537},
	} {
		if checkModulus(key) == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// rocaWithBits is rocaModulus with an exact length.
func rocaWithBits(t *testing.T, bits int) *big.Int {
	n := rocaModulus(t)
	product := big.NewInt(1)
	for _, p := range rocaPrimes() {
		product.Mul(product, new(big.Int).SetUint64(p))
	}
	rest := new(big.Int).Mod(n, product)
	k := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	k.Div(k, product).Add(k, big.NewInt(1))
	return rest.Add(rest, k.Mul(k, product))
}
