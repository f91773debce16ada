package pivcard

import (
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
	algRSA1024 = 0x06
	algRSA2048 = 0x07
	algRSA3072 = 0x05
	algRSA4096 = 0x16
	algP256    = 0x11
	algP384    = 0x14
)

var rsaBits = map[byte]int{algRSA1024: 1024, algRSA2048: 2048, algRSA3072: 3072, algRSA4096: 4096}

var curves = map[byte]elliptic.Curve{algP256: elliptic.P256(), algP384: elliptic.P384()}

// slotAttestation holds the key that signs statements about the others.
const slotAttestation = 0xf9

// Policies of a key, as Yubico's extensions encode them. 0 is "the slot's own".
const (
	pinNever    = 0x01
	pinOnce     = 0x02
	pinAlways   = 0x03
	touchNever  = 0x01
	touchAlways = 0x02
	touchCached = 0x03
)

// A key is what a slot holds.
type key struct {
	alg        byte
	pin, touch byte
	imported   bool
	private    crypto.Signer
}

// isSlot reports whether a key can live in slot.
func isSlot(slot byte) bool {
	switch slot {
	case 0x9a, 0x9c, 0x9d, 0x9e, slotAttestation:
		return true
	}
	return 0x82 <= slot && slot <= 0x95
}

// supports reports whether this firmware has the algorithm.
func (c *Card) supports(alg byte) bool {
	if alg == algRSA3072 || alg == algRSA4096 {
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
