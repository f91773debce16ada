package keystest_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/keys/keystest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	keystest.Run(t, func(*testing.T) keystest.Harness {
		memory := keystest.NewMemory()
		return keystest.Harness{
			Open:       func(*testing.T) keys.Backend { memory.Reopen(); return memory },
			Other:      func(*testing.T) keys.Backend { return keystest.NewMemory() },
			Can:        []keys.Capability{{Algorithm: keys.ES256}, {Algorithm: keys.ES384}, {Algorithm: keys.RS256, RSABits: 2048}},
			Slots:      3,
			WrongPINs:  3,
			Persistent: true,
			Seals:      true,
			Stall:      func(*testing.T) func() { return memory.Block() },
		}
	})
}

var digest = sha256.Sum256([]byte("message"))

func sign(ctx context.Context, b keys.Backend, m keys.Material) error {
	signature, err := b.Sign(ctx, m, keys.ECDSAP256SHA256, digest[:])
	if err != nil {
		return err
	}
	public, err := keys.ParsePublic(m.Public)
	if err != nil {
		return err
	}
	return keys.Verify(public, keys.ECDSAP256SHA256, digest[:], signature)
}

func create(t *testing.T, b keys.Backend) keys.Material {
	t.Helper()
	m, err := b.Create(t.Context(), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMemoryBlocks(t *testing.T) {
	b := keystest.NewMemory()
	m := create(t, b)
	release := b.Block()
	done := make(chan error, 1)
	go func() { done <- sign(context.Background(), b, m) }()
	b.WaitBlocked()
	select {
	case err := <-done:
		t.Fatalf("a blocked device has answered: %v", err)
	default:
	}
	release()
	release() // harmless
	if err := <-done; err != nil {
		t.Errorf("after release: %v", err)
	}
	if got := b.Signs(); got != 1 {
		t.Errorf("Signs: got %d, want 1", got)
	}
}

func TestMemoryFails(t *testing.T) {
	b := keystest.NewMemory()
	m := create(t, b)
	b.Fail(&fault.Error{Kind: fault.DeviceAbsent, Message: "gone"})
	if err := sign(t.Context(), b, m); fault.KindOf(err) != fault.DeviceAbsent {
		t.Errorf("got %v, want device-absent", err)
	}
	if got := b.Status(t.Context()); got.State != keys.StateAbsent || got.Reason != "gone" {
		t.Errorf("status: got %q %q, want absent, gone", got.State, got.Reason)
	}
	b.Fail(errors.New("something else"))
	if err := sign(t.Context(), b, m); err == nil || err.Error() != "something else" {
		t.Errorf("got %v, want the error as ordered", err)
	}
	b.Fail(nil)
	if err := sign(t.Context(), b, m); err != nil {
		t.Errorf("after Fail(nil): %v", err)
	}
}

func TestMemorySignsWrong(t *testing.T) {
	b := keystest.NewMemory()
	m := create(t, b)
	b.SignWrong(true)
	if err := sign(t.Context(), b, m); fault.KindOf(err) != fault.KeyMismatch {
		t.Errorf("got %v, want a signature that does not verify", err)
	}
	b.SignWrong(false)
	if err := sign(t.Context(), b, m); err != nil {
		t.Error(err)
	}
}

func TestMemoryDelays(t *testing.T) {
	b := keystest.NewMemory()
	m := create(t, b)
	b.Delay(30 * time.Millisecond)
	start := time.Now()
	if err := sign(t.Context(), b, m); err != nil || time.Since(start) < 30*time.Millisecond {
		t.Errorf("got %v after %v, want success after 30 ms", err, time.Since(start))
	}
	b.Delay(time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := sign(ctx, b, m); fault.KindOf(err) != fault.Deadline {
		t.Errorf("got %v, want deadline", err)
	}
}
