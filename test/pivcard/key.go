package pivcard

import (
	"cmp"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"math/big"
)

// Algorithms of keys (SP 800-78-4, table 6-2; 3072 and 4096 bits are Yubico's).
const (
	RSA1024 byte = 0x06
	RSA2048 byte = 0x07
	RSA3072 byte = 0x05
	RSA4096 byte = 0x16
	P256    byte = 0x11
	P384    byte = 0x14
)

var rsaBits = map[byte]int{RSA1024: 1024, RSA2048: 2048, RSA3072: 3072, RSA4096: 4096}

var curves = map[byte]elliptic.Curve{P256: elliptic.P256(), P384: elliptic.P384()}

// SlotAttestation holds the key that signs statements about the others.
const SlotAttestation byte = 0xf9

// Policies of a key, as Yubico's extensions encode them.
const (
	PINNever    byte = 0x01
	PINOnce     byte = 0x02
	PINAlways   byte = 0x03
	TouchNever  byte = 0x01
	TouchAlways byte = 0x02
	TouchCached byte = 0x03
)

// A key is what a slot holds.
type key struct {
	alg        byte
	pin, touch byte
	imported   bool
	private    crypto.Signer
}

// A Key is a key as [Card.SetKey] puts it into a slot. Policies that are 0 are
// the slot's own.
type Key struct {
	Algorithm  byte          // what to generate when Private is nil
	Private    crypto.Signer // an *ecdsa.PrivateKey or *rsa.PrivateKey
	PIN, Touch byte
	Imported   bool // is what the card says of its origin
}

// SetKey puts a key into a slot without any of the checks of the card's own
// commands, and returns its public half.
func (c *Card) SetKey(slot byte, k Key) crypto.PublicKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := &key{alg: k.Algorithm, imported: k.Imported, private: k.Private}
	entry.policies(slot, nil)
	entry.pin, entry.touch = cmp.Or(k.PIN, entry.pin), cmp.Or(k.Touch, entry.touch)
	if entry.private == nil {
		entry.private = newKey(entry.alg)
	} else {
		entry.alg = algorithmOf(entry.private.Public())
	}
	c.keys[slot] = entry
	return entry.private.Public()
}

// Public returns the public half of the key in a slot; nil when it is empty.
func (c *Card) Public(slot byte) crypto.PublicKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.keys[slot]; k != nil {
		return k.private.Public()
	}
	return nil
}

func algorithmOf(public crypto.PublicKey) byte {
	switch p := public.(type) {
	case *rsa.PublicKey:
		for alg, bits := range rsaBits {
			if bits == p.N.BitLen() {
				return alg
			}
		}
	case *ecdsa.PublicKey:
		for alg, curve := range curves {
			if curve == p.Curve {
				return alg
			}
		}
	}
	return 0
}

// isSlot reports whether a key can live in slot.
func isSlot(slot byte) bool {
	switch slot {
	case 0x9a, 0x9c, 0x9d, 0x9e, SlotAttestation:
		return true
	}
	return 0x82 <= slot && slot <= 0x95
}

// supports reports whether this firmware has the algorithm.
func (c *Card) supports(alg byte) bool {
	if alg == RSA3072 || alg == RSA4096 {
		return c.Firmware.AtLeast(Firmware{5, 7, 0})
	}
	return rsaBits[alg] != 0 || curves[alg] != nil
}

// newKey makes a private key; the algorithm is known to be supported.
func newKey(alg byte) crypto.Signer {
	var k crypto.Signer
	var err error
	if curve := curves[alg]; curve != nil {
		k, err = ecdsa.GenerateKey(curve, rand.Reader)
	} else {
		k, err = rsa.GenerateKey(rand.Reader, rsaBits[alg])
	}
	if err != nil {
		panic(err) // no randomness
	}
	return k
}

// encoded is the public key as GENERATE and GET METADATA give it: modulus and
// exponent, or the point (SP 800-73-4 part 2, 3.3.2).
func encoded(public crypto.PublicKey) []byte {
	switch p := public.(type) {
	case *rsa.PublicKey:
		return append(tlv(0x81, p.N.Bytes()), tlv(0x82, big.NewInt(int64(p.E)).Bytes())...)
	case *ecdsa.PublicKey:
		point, err := p.Bytes()
		if err != nil {
			panic(err) // made or checked by this package
		}
		return tlv(0x86, point)
	}
	return nil
}

// sign signs an EC digest, or applies the RSA private operation to a block.
func (k *key) sign(input []byte) ([]byte, status) {
	switch p := k.private.(type) {
	case *ecdsa.PrivateKey:
		if len(input) > (p.Params().BitSize+7)/8 {
			return nil, wrongData
		}
		signature, err := ecdsa.SignASN1(rand.Reader, p, input)
		if err != nil {
			return nil, notAllowed
		}
		return signature, ok
	case *rsa.PrivateKey:
		return raw(p, input)
	}
	return nil, wrongParameters
}

// raw is RSA without padding, by the Chinese remainder theorem.
func raw(p *rsa.PrivateKey, input []byte) ([]byte, status) {
	m := new(big.Int).SetBytes(input)
	if len(input) != p.Size() || m.Cmp(p.N) >= 0 {
		return nil, wrongData
	}
	a := new(big.Int).Exp(m, p.Precomputed.Dp, p.Primes[0])
	b := new(big.Int).Exp(m, p.Precomputed.Dq, p.Primes[1])
	a.Sub(a, b).Mul(a, p.Precomputed.Qinv).Mod(a, p.Primes[0])
	a.Mul(a, p.Primes[1]).Add(a, b)
	return a.FillBytes(make([]byte, p.Size())), ok
}

// agree is ECDH with the point of the other side.
func (k *key) agree(point []byte) ([]byte, status) {
	p, isEC := k.private.(*ecdsa.PrivateKey)
	if !isEC {
		return nil, wrongParameters
	}
	own, err := p.ECDH()
	if err != nil {
		return nil, wrongParameters
	}
	other, err := own.Curve().NewPublicKey(point)
	if err != nil {
		return nil, wrongData
	}
	return shared(own, other)
}

func shared(own *ecdh.PrivateKey, other *ecdh.PublicKey) ([]byte, status) {
	s, err := own.ECDH(other)
	if err != nil {
		return nil, wrongData
	}
	return s, ok
}
