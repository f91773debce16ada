package keystest

import (
	"bytes"
	"context"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// mayUse counts a signature, or says that the key wants its PIN.
func (m *Memory) mayUse(mat keys.Material) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mat.PIN && !time.Now().Before(m.unlocked[string(mat.Device)]) {
		return &fault.Error{Kind: fault.PINRequired, Message: "the key wants its PIN", Hint: "unlock the key"}
	}
	m.signs++
	return nil
}

// Unlock implements keys.Backend.
func (m *Memory) Unlock(ctx context.Context, mat keys.Material, pin []byte, until time.Time) error {
	key, err := m.unseal(mat)
	if err != nil {
		return err
	}
	if err := keys.CheckPIN(pin); err != nil {
		return err
	}
	if len(key.PIN) == 0 || !time.Now().Before(until) {
		return &fault.Error{Kind: fault.BadRequest, Message: "the key has no PIN, or the time is past"}
	}
	if err := m.enter(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.prove(pin, key.PIN); err != nil {
		return err
	}
	m.unlocked[string(mat.Device)] = until
	return nil
}

// prove counts wrong PINs. m.mu is held.
func (m *Memory) prove(pin, want []byte) error {
	if m.pin != nil {
		want = m.pin
	}
	if m.wrong >= memoryWrongPINs {
		return &fault.Error{Kind: fault.PINBlocked, Message: "too many wrong PINs"}
	}
	if !bytes.Equal(pin, want) {
		m.wrong++
		return &fault.Error{Kind: fault.PINRequired, Message: "the PIN is wrong"}
	}
	m.wrong = 0
	return nil
}

// Lock implements keys.Backend.
func (m *Memory) Lock(mat *keys.Material) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mat == nil {
		clear(m.unlocked)
		return
	}
	delete(m.unlocked, string(mat.Device))
}
