package attestation_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"math/big"
	"testing"

	"holdfast/internal/fault"
	"holdfast/piv/attestation"
)

// rocaKey makes a key as Infineon's library did: both primes are k*M + (65537^a
// mod M), with M the product of the primes up to 167 but 2 (Nemec et al., The
// Return of Coppersmith's Attack, section 2).
func rocaKey(t *testing.T) crypto.Signer {
	t.Helper()
	p, q := rocaPrime(t), rocaPrime(t)
	one := big.NewInt(1)
	phi := new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one))
	key := &rsa.PrivateKey{
		PublicKey: rsa.PublicKey{N: new(big.Int).Mul(p, q), E: 65537},
		D:         new(big.Int).ModInverse(big.NewInt(65537), phi),
		Primes:    []*big.Int{p, q},
	}
	key.Precompute()
	if err := key.Validate(); err != nil {
		t.Fatal(err)
	}
	return key
}

func rocaPrime(t *testing.T) *big.Int {
	t.Helper()
	product := big.NewInt(1)
	for n := int64(3); n <= 167; n += 2 {
		if big.NewInt(n).ProbablyPrime(0) {
			product.Mul(product, big.NewInt(n))
		}
	}
	random := func(below *big.Int) *big.Int {
		n, err := rand.Int(rand.Reader, below)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	// The top two bits are set, so that the modulus has 2048.
	least := new(big.Int).Lsh(big.NewInt(3), 1022)
	least.Div(least, product).Add(least, big.NewInt(1))
	spread := new(big.Int).Div(new(big.Int).Lsh(big.NewInt(1), 1021), product)
	for {
		n := new(big.Int).Exp(big.NewInt(65537), random(product), product)
		k := new(big.Int).Add(least, random(spread))
		n.Add(n, k.Mul(k, product))
		if n.Bit(0) == 1 && n.BitLen() == 1024 && n.ProbablyPrime(10) {
			return n
		}
	}
}

func TestVerifyRefusesWeakKeys(t *testing.T) {
	weak := rocaKey(t)
	for _, c := range []struct {
		name   string
		change func(*scene)
		fact   string
	}{
		{"in the slot", func(s *scene) { s.holds(weak.Public()) }, "the key has the ROCA fingerprint"},
		{"in f9", func(s *scene) { s.card = newCard(s.t, s.root, weak, s.card.key, nil) }, "attestation key has the ROCA fingerprint"},
		{"by its firmware", func(s *scene) {
			s.holds(rsaKey().Public())
			s.card.says(3, []byte{4, 3, 4})
			s.want.Firmware = "4.3.4"
		}, "made by firmware 4.3.4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			c.change(s)
			got, err := s.verify()
			refused(t, got, err, fault.Unsupported, c.fact)
			if !errors.Is(err, attestation.ErrWeak) {
				t.Errorf("%v is not ErrWeak", err)
			}
		})
	}
}

// ROCA is about RSA keys that were made in the YubiKey.
func TestVerifyTakesOtherKeysOfWeakFirmware(t *testing.T) {
	s := newScene(t)
	s.card.says(3, []byte{4, 3, 4})
	s.want.Firmware = "4.3.4"
	if _, err := s.verify(); err != nil {
		t.Error(err)
	}
}
