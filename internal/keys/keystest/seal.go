package keystest

import (
	"bytes"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/x509"
	"encoding/json"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// A secret is what a Memory knows of a key.
type secret struct {
	private crypto.Signer

	Scheme  keys.Scheme
	PIN     []byte
	Private []byte // PKCS #8
	Card    *keys.Place
}

// A record is the device member of a Memory's materials: like a TPM's, of use
// on its own device alone.
type record struct {
	Device string `json:"device"`
	Sealed []byte `json:"sealed"` // a secret, AES-256-GCM with a random nonce
}

func (m *Memory) aead() cipher.AEAD {
	block, err := aes.NewCipher(m.seal[:])
	if err != nil {
		panic(err) // the key has 32 bytes
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // the block has 16 bytes
	}
	return aead
}

// material seals s.
func (m *Memory) material(s secret) (keys.Material, error) {
	var err error
	if s.Private, err = x509.MarshalPKCS8PrivateKey(s.private); err != nil {
		return keys.Material{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(s.private.Public())
	if err != nil {
		return keys.Material{}, err
	}
	plain, err := json.Marshal(s)
	if err != nil {
		return keys.Material{}, err
	}
	device, err := json.Marshal(record{Device: m.id, Sealed: m.aead().Seal(nil, nil, plain, nil)})
	return keys.Material{Backend: m.Name(), Public: public, Device: device, PIN: len(s.PIN) > 0, Card: s.Card}, err
}

// unseal opens a material and compares it with what was made.
func (m *Memory) unseal(mat keys.Material) (*secret, error) {
	s, err := m.open(mat)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(s.private.Public())
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(public, mat.Public) || mat.PIN != (len(s.PIN) > 0) || !samePlace(mat.Card, s.Card) {
		return nil, &fault.Error{Kind: fault.KeyMismatch, Message: "the record does not say what the device holds"}
	}
	return s, nil
}

func samePlace(a, b *keys.Place) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func (m *Memory) open(mat keys.Material) (*secret, error) {
	if mat.Backend != m.Name() {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: "the key is another backend's"}
	}
	var r record
	if err := json.Unmarshal(mat.Device, &r); err != nil {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: "the record is damaged", Err: err}
	}
	if r.Device != m.id {
		return nil, &fault.Error{Kind: fault.IdentityChanged, Message: "the key was made on another device"}
	}
	plain, err := m.aead().Open(nil, nil, r.Sealed, nil)
	if err != nil {
		return nil, &fault.Error{Kind: fault.KeyLost, Message: "the device does not take the key", Err: err}
	}
	var s secret
	if err := json.Unmarshal(plain, &s); err != nil {
		return nil, err
	}
	private, err := x509.ParsePKCS8PrivateKey(s.Private)
	if err != nil {
		return nil, err
	}
	s.private = private.(crypto.Signer) // every private key of the standard library is one
	return &s, nil
}
