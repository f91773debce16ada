package keystest

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// A Memory is a backend of software keys, for tests of the code above a backend. It
// passes [Run], PINs included, and the caller orders its faults: [Memory.Block], [Memory.Delay], [Memory.Fail],
// [Memory.SignWrong]. Its device lives as long as the Memory: after Close,
// Reopen continues with the same keys. It protects nothing.
type Memory struct {
	name string
	seal [32]byte // encrypts the private keys in materials
	id   string   // names the device in materials

	mu       sync.Mutex // guards what follows; not held while a call blocks
	closed   bool
	since    time.Time
	unlocked map[string]time.Time // by the material's device member
	pin      []byte               // of a card, hence of all keys that have one; else nil
	wrong    int                  // PINs in a row
	signs    int
	faults   faults
}

var _ keys.Backend = (*Memory)(nil)

// memoryWrongPINs is how many wrong PINs in a row a Memory tries.
const memoryWrongPINs = 3

// NewMemory returns a Memory with a device of its own.
func NewMemory() *Memory {
	m := &Memory{name: "memory", since: time.Now(), unlocked: map[string]time.Time{}, faults: newFaults()}
	rand.Read(m.seal[:])
	m.id = "memory:" + rand.Text()
	return m
}

// Name returns "memory", and for a card of [MemoryCards] "piv".
func (m *Memory) Name() string { return m.name }

// Signs returns how many requested signatures were not rejected at once.
func (m *Memory) Signs() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.signs
}

// Create implements keys.Backend.
func (m *Memory) Create(ctx context.Context, t keys.Template) (keys.Material, error) {
	if err := m.enter(ctx); err != nil {
		return keys.Material{}, err
	}
	if len(t.PIN) > 0 {
		if err := keys.CheckPIN(t.PIN); err != nil {
			return keys.Material{}, err
		}
	}
	return m.make(t, t.PIN, nil)
}

// make makes the key of a template that is good otherwise.
func (m *Memory) make(t keys.Template, pin []byte, place *keys.Place) (keys.Material, error) {
	scheme, err := keys.SchemeFor(t.Algorithm, t.Purpose)
	if err != nil {
		return keys.Material{}, err
	}
	private, err := generate(t)
	if err != nil {
		return keys.Material{}, err
	}
	return m.material(secret{private: private, Scheme: scheme, PIN: bytes.Clone(pin), Card: place})
}

func generate(t keys.Template) (crypto.Signer, error) {
	switch {
	case t.Algorithm == keys.ES256 && t.RSABits == 0:
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case t.Algorithm == keys.ES384 && t.RSABits == 0:
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case t.Algorithm == keys.RS256 && (t.RSABits == 0 || t.RSABits == 2048 || t.RSABits == 3072 || t.RSABits == 4096):
		return rsa.GenerateKey(rand.Reader, max(t.RSABits, 2048))
	}
	return nil, &fault.Error{Kind: fault.Unsupported, Message: fmt.Sprintf("a memory makes no %s keys of %d bits", t.Algorithm, t.RSABits)}
}

// Check implements keys.Backend.
func (m *Memory) Check(ctx context.Context, mat keys.Material) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	_, err := m.unseal(mat)
	return err
}

// Sign implements keys.Backend.
func (m *Memory) Sign(ctx context.Context, mat keys.Material, s keys.Scheme, digest []byte) ([]byte, error) {
	key, err := m.unseal(mat)
	if err != nil {
		return nil, err
	}
	if s != key.Scheme || len(digest) != s.Hash().Size() {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("the key signs %s and nothing else", key.Scheme)}
	}
	if err := m.mayUse(mat); err != nil {
		return nil, err
	}
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	if m.signsWrong() {
		digest = bytes.Clone(digest)
		digest[0] ^= 1
	}
	return key.private.Sign(rand.Reader, digest, s.SignerOpts())
}

// Persist implements keys.Backend. There is nothing to put anywhere.
func (m *Memory) Persist(ctx context.Context, mat keys.Material) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	_, err := m.unseal(mat)
	return err
}

// Delete implements keys.Backend. The device holds nothing.
func (m *Memory) Delete(ctx context.Context, mat keys.Material) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	if _, err := m.unseal(mat); err != nil {
		return err
	}
	m.Lock(&mat)
	return nil
}

// Export implements keys.Backend. The format is Memory's own: the material's
// device member.
func (m *Memory) Export(mat keys.Material) ([]byte, error) {
	if _, err := m.unseal(mat); err != nil {
		return nil, err
	}
	return bytes.Clone(mat.Device), nil
}

// Import implements keys.Backend.
func (m *Memory) Import(ctx context.Context, t keys.Template, file []byte, _ bool) (keys.Material, error) {
	if err := m.enter(ctx); err != nil {
		return keys.Material{}, err
	}
	mat := keys.Material{Backend: m.Name(), Device: json.RawMessage(bytes.Clone(file))}
	key, err := m.open(mat)
	if err != nil {
		return keys.Material{}, err
	}
	a, bits, err := keys.AlgorithmOf(key.private.Public())
	if err != nil {
		return keys.Material{}, err
	}
	if t.Algorithm != "" && t.Algorithm != a || t.RSABits != 0 && t.RSABits != bits {
		return keys.Material{}, &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("the file holds an %s key", a)}
	}
	mat.PIN, mat.Card = len(key.PIN) > 0, key.Card
	mat.Public, err = x509.MarshalPKIXPublicKey(key.private.Public())
	return mat, err
}

// Status implements keys.Backend.
func (m *Memory) Status(context.Context) keys.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := memoryWrongPINs - m.wrong
	s := keys.Status{
		Backend: m.Name(), Device: m.id, State: keys.StateReady, Since: m.since, Software: true, TriesLeft: &left,
		Can: []keys.Capability{{Algorithm: keys.ES256}, {Algorithm: keys.ES384},
			{Algorithm: keys.RS256, RSABits: 2048}, {Algorithm: keys.RS256, RSABits: 3072}, {Algorithm: keys.RS256, RSABits: 4096}},
	}
	m.faults.show(&s)
	return s
}

// Close implements keys.Backend.
func (m *Memory) Close() error {
	m.Lock(nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// Reopen makes a closed Memory usable again, as a restarted program would find
// its device: the keys are there, and locked.
func (m *Memory) Reopen() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = false
}
