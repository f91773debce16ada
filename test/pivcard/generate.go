package pivcard

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"math/big"
)

// Tags that carry the policies of a new key (Yubico's extensions).
const (
	tagAlgorithm   = 0x80
	tagPINPolicy   = 0xaa
	tagTouchPolicy = 0xab
)

// generate is GENERATE ASYMMETRIC KEY PAIR (SP 800-73-4 part 2, 3.3.2) with
// Yubico's policies.
func (c *Card) generate(cmd command) ([]byte, status) {
	if !c.managing {
		return nil, notSatisfied
	}
	outer, value, _, err := next(cmd.data)
	if err != nil || outer != 0xac {
		return nil, wrongData
	}
	template, err := fields(value)
	alg := template[tagAlgorithm]
	if err != nil || len(alg) != 1 || !c.supports(alg[0]) || !isSlot(cmd.p2) {
		return nil, wrongData
	}
	k := &key{alg: alg[0]}
	if s := k.policies(cmd.p2, template); s != ok {
		return nil, s
	}
	k.private = newKey(k.alg)
	c.keys[cmd.p2] = k
	return tlv(0x7f49, encoded(k.private.Public())), ok
}

// policies reads the policies of a new key, or takes the slot's own: 9c asks
// for the PIN each time, 9e never, the others once.
func (k *key) policies(slot byte, template map[uint32][]byte) status {
	k.pin, k.touch = PINOnce, TouchNever
	switch slot {
	case 0x9c:
		k.pin = PINAlways
	case 0x9e:
		k.pin = PINNever
	}
	for tag, policy := range map[uint32]*byte{tagPINPolicy: &k.pin, tagTouchPolicy: &k.touch} {
		value, there := template[tag]
		if !there {
			continue
		}
		if len(value) != 1 || value[0] > PINAlways {
			return wrongData
		}
		if value[0] != 0 {
			*policy = value[0]
		}
	}
	return ok
}

// importKey is Yubico's IMPORT ASYMMETRIC KEY: P1 algorithm, P2 slot, then the
// five parts of an RSA key in tags 1 to 5, or an EC scalar in tag 6.
func (c *Card) importKey(cmd command) ([]byte, status) {
	if !c.managing {
		return nil, notSatisfied
	}
	template, err := fields(cmd.data)
	if err != nil || !isSlot(cmd.p2) || !c.supports(cmd.p1) {
		return nil, wrongData
	}
	k := &key{alg: cmd.p1, imported: true}
	if s := k.policies(cmd.p2, template); s != ok {
		return nil, s
	}
	if curve := curves[k.alg]; curve != nil {
		private, err := ecdsa.ParseRawPrivateKey(curve, template[6])
		if err != nil {
			return nil, wrongData
		}
		k.private = private
	} else {
		private := rsaKey(template[1], template[2], rsaBits[k.alg])
		if private == nil {
			return nil, wrongData
		}
		k.private = private
	}
	c.keys[cmd.p2] = k
	return nil, ok
}

// rsaKey makes a key of its two primes, with the usual exponent; nil when they
// are none, or none of that size. The other parts of an imported key follow
// from them.
func rsaKey(p, q []byte, bits int) *rsa.PrivateKey {
	k := &rsa.PrivateKey{Primes: []*big.Int{new(big.Int).SetBytes(p), new(big.Int).SetBytes(q)}}
	k.E = 65537
	one, phi := big.NewInt(1), big.NewInt(1)
	k.N = big.NewInt(1)
	for _, prime := range k.Primes {
		k.N.Mul(k.N, prime)
		phi.Mul(phi, new(big.Int).Sub(prime, one))
	}
	if k.N.BitLen() != bits || phi.Sign() <= 0 {
		return nil
	}
	k.D = new(big.Int).ModInverse(big.NewInt(int64(k.E)), phi)
	if k.D == nil || k.Validate() != nil {
		return nil
	}
	k.Precompute()
	return k
}

// moveKey is Yubico's MOVE KEY: from P2 to P1, or away when P1 is ff.
func (c *Card) moveKey(cmd command) ([]byte, status) {
	k := c.keys[cmd.p2]
	switch {
	case !c.managing:
		return nil, notSatisfied
	case cmd.p1 != 0xff && (!isSlot(cmd.p1) || cmd.p1 == SlotAttestation || cmd.p2 == SlotAttestation):
		return nil, wrongParameters
	case k == nil:
		return nil, noReference
	}
	if cmd.p1 != 0xff {
		c.keys[cmd.p1] = k
	}
	if cmd.p1 != cmd.p2 {
		delete(c.keys, cmd.p2)
	}
	return nil, ok
}
