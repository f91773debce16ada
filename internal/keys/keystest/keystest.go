// Package keystest tests the behaviour that all keys.Backends share, as one
// suite, and a backend of software keys for the tests of everything above
// backends.
//
// Start at [Run], which a backend's own test calls with a [Harness], and at
// [Memory], which the agent's tests use where a device would only be in the
// way. The suite does not count the device commands of an operation and does not
// test faults that only one kind of device has: those tests are in the backend's
// package.
package keystest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// A Harness is one fresh device and its properties. Backends
// that it opens are closed, and its device removed, with the test.
type Harness struct {
	// Open opens a backend on the harness's device. The suite calls it again
	// only after it has closed the backend that it opened before.
	Open func(*testing.T) keys.Backend

	// Other opens a backend of the same kind on another device.
	Other func(*testing.T) keys.Backend

	// Can lists the kinds of key that the suite makes; RSA takes its time.
	Can []keys.Capability

	// Slots is how many keys the device holds loaded; the suite uses more.
	Slots int

	// WrongPINs is how many wrong PINs are tried on this device before a try is
	// refused; a right one in between may or may not count as a new start. Zero:
	// the device cannot do PINs.
	WrongPINs int

	// PIN is the PIN of every key that the suite gives one, WrongPIN one that fits no
	// key as well. Empty: any PIN will do.
	PIN, WrongPIN string

	// SharedPIN: all keys of one device have the same PIN, as those of a card have.
	SharedPIN bool

	// Prepare completes a template with the secrets that the device needs before it makes
	// or adopts a key. Nil: none.
	Prepare func(*keys.Template)

	// Persistent: keys can be kept loaded in the device.
	Persistent bool

	// Seals: the backend is a keys.Sealer.
	Seals bool

	// Stall makes the device stop answering until release is called. Nil when it
	// cannot.
	Stall func(*testing.T) (release func())
}

// testTimeout is the deadline of everything that has to succeed. RSA keys take
// software TPMs seconds.
const testTimeout = time.Minute

// prompt is how soon a call must come back when its context has ended.
const prompt = 2 * time.Second

// Run checks everything that a keys.Backend promises. It calls fresh once for
// each test.
func Run(t *testing.T, fresh func(*testing.T) Harness) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Harness)
	}{
		{"Create", testCreate},
		{"CreateRefuses", testCreateRefuses},
		{"Material", testMaterial},
		{"Persistent", testPersistent},
		{"ManyKeys", testManyKeys},
		{"Concurrent", testConcurrent},
		{"SignRefuses", testSignRefuses},
		{"OtherDevice", testOtherDevice},
		{"OtherBackend", testOtherBackend},
		{"DamagedPublic", testDamagedPublic},
		{"DamagedDevice", testDamagedDevice},
		{"SwappedPublic", testSwappedPublic},
		{"CancelledBefore", testCancelledBefore},
		{"Stalled", testStalled},
		{"PIN", testPIN},
		{"PINExpires", testPINExpires},
		{"PINLock", testPINLock},
		{"PINWrong", testPINWrong},
		{"PINIsNotKept", testPINIsNotKept},
		{"PINOfAnotherKey", testPINOfAnotherKey},
		{"ExportImport", testExportImport},
		{"ImportRefuses", testImportRefuses},
		{"Delete", testDelete},
		{"Seal", testSeal},
		{"SealRefuses", testSealRefuses},
		{"SealOtherDevice", testSealOtherDevice},
		{"SealDamaged", testSealDamaged},
		{"SealIsSecret", testSealIsSecret},
		{"SealWaits", testSealWaits},
		{"Status", testStatus},
		{"Reopen", testReopen},
		{"Close", testClose},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, fresh(t).withPINs()) })
	}
}

// A subject is an open backend under test.
type subject struct {
	keys.Backend
	t *testing.T
	h Harness
}

func open(t *testing.T, h Harness) *subject {
	t.Helper()
	b := h.Open(t)
	t.Cleanup(func() { b.Close() })
	return &subject{b, t, h}
}

// Create completes the template first.
func (s *subject) Create(ctx context.Context, t keys.Template) (keys.Material, error) {
	if s.h.Prepare != nil {
		s.h.Prepare(&t)
	}
	return s.Backend.Create(ctx, t)
}

// Import completes the template first.
func (s *subject) Import(ctx context.Context, t keys.Template, file []byte, allowImported bool) (keys.Material, error) {
	if s.h.Prepare != nil {
		s.h.Prepare(&t)
	}
	return s.Backend.Import(ctx, t, file, allowImported)
}

func (s *subject) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	s.t.Cleanup(cancel)
	return ctx
}

// baseline is the template that tests start from and change in one place.
func baseline() keys.Template {
	return keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256}
}

func withPIN(pin string) keys.Template {
	t := baseline()
	t.PIN = []byte(pin)
	return t
}

// create makes a key or ends the test.
func (s *subject) create(t keys.Template) keys.Material {
	s.t.Helper()
	t.PIN = bytes.Clone(t.PIN)
	m, err := s.Create(s.ctx(), t)
	if err != nil {
		s.t.Fatalf("create %s for %s: %v", t.Algorithm, t.Purpose, err)
	}
	if err := s.Persist(s.ctx(), m); err != nil {
		s.t.Fatalf("persist: %v", err)
	}
	return m
}

// schemeOf returns the one scheme of a key made for p.
func schemeOf(m keys.Material, p keys.Purpose) (keys.Scheme, error) {
	public, err := keys.ParsePublic(m.Public)
	if err != nil {
		return "", err
	}
	a, _, err := keys.AlgorithmOf(public)
	if err != nil {
		return "", err
	}
	return keys.SchemeFor(a, p)
}

// signs has m sign a random digest for p and returns nil when the signature
// verifies under m's public key.
func signs(ctx context.Context, b keys.Backend, m keys.Material, p keys.Purpose) error {
	scheme, err := schemeOf(m, p)
	if err != nil {
		return err
	}
	digest := make([]byte, scheme.Hash().Size())
	rand.Read(digest)
	signature, err := b.Sign(ctx, m, scheme, digest)
	if err != nil {
		return err
	}
	public, err := keys.ParsePublic(m.Public)
	if err != nil {
		return err
	}
	return keys.Verify(public, scheme, digest, signature)
}

// wantSigns ends the test unless m signs for tls-client.
func (s *subject) wantSigns(m keys.Material) {
	s.t.Helper()
	if err := signs(s.ctx(), s, m, keys.TLSClient); err != nil {
		s.t.Fatalf("sign: %v", err)
	}
}

// wantKind notes an error that is not a fault.Error of one of kinds.
func wantKind(t *testing.T, what string, err error, kinds ...fault.Kind) {
	t.Helper()
	var e *fault.Error
	if !errors.As(err, &e) || !slices.Contains(kinds, e.Kind) {
		t.Errorf("%s: got %s, want kind %v", what, describe(err), kinds)
	}
}

func describe(err error) string {
	if err == nil {
		return "success"
	}
	return fmt.Sprintf("%s (%v)", fault.KindOf(err), err)
}

// refusals are the kinds of errors for material that is not of this device, or was
// changed.
var refusals = []fault.Kind{
	fault.BadRequest, fault.KeyLost, fault.KeyMismatch, fault.IdentityChanged, fault.Unsupported, fault.WrongPurpose,
}

// stored returns m as it comes back from a disk.
func stored(t *testing.T, m keys.Material) keys.Material {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var back keys.Material
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	return back
}
