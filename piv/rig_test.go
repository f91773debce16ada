package piv_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"testing"
	"time"

	"holdfast/internal/keys"
	"holdfast/piv"
	"holdfast/piv/attestation"
	"holdfast/test/pivcard"
)

const (
	rightPIN = "Corr3ct!"
	wrongPIN = "Wr0ng-it"
	rightPUK = "13572468"
)

// config points at a rig and trusts its cards.
func config(t testing.TB, rig *pivcard.Rig) piv.Config {
	t.Helper()
	roots, err := attestation.Genuine().With(rig.Maker.PEM())
	if err != nil {
		t.Fatal(err)
	}
	return piv.Config{Program: program, Roots: roots, Socket: rig.Socket(), Log: slog.New(slog.NewTextHandler(testWriter{t}, nil))}
}

// testWriter writes to the test's log while the test runs.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Logf("%s", b[:max(len(b)-1, 0)])
	}
	return len(b), nil
}

func openPIV(t testing.TB, c piv.Config) *piv.PIV {
	t.Helper()
	b, err := piv.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// setUp gives a card that came from the factory our PIN and PUK.
func setUp(t testing.TB, b *piv.PIV, serial uint32) {
	t.Helper()
	err := b.SetUp(soon(t), serial, keys.CardSetUp{PIN: []byte(rightPIN), PUK: []byte(rightPUK)})
	if err != nil {
		t.Fatalf("set up card %d: %v", serial, err)
	}
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// create makes a key on a card that is set up.
func create(t testing.TB, b *piv.PIV, o keys.OnCard) keys.Material {
	t.Helper()
	o.PIN = []byte(rightPIN)
	m, err := b.Create(soon(t), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, Card: o})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return m
}

func sign(ctx context.Context, b keys.Backend, m keys.Material) error {
	digest := make([]byte, 32)
	rand.Read(digest)
	signature, err := b.Sign(ctx, m, keys.ECDSAP256SHA256, digest)
	if err != nil {
		return err
	}
	public, err := keys.ParsePublic(m.Public)
	if err != nil {
		return err
	}
	return keys.Verify(public, keys.ECDSAP256SHA256, digest, signature)
}

func unlock(t testing.TB, b *piv.PIV, m keys.Material) {
	t.Helper()
	if err := b.Unlock(soon(t), m, []byte(rightPIN), time.Now().Add(time.Hour)); err != nil {
		t.Fatalf("unlock: %v", err)
	}
}
