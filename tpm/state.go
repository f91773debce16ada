package tpm

import (
	"context"
	"errors"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// health is the device's state after the last commands.
type health struct {
	state  keys.State
	since  time.Time
	reason string
	hint   string
	until  *time.Time // with StateLocked, when known
}

// state returns the device's state.
func (t *TPM) state() keys.State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.health.state
}

// enter changes the state. Entering the same state again keeps its since.
func (t *TPM) enter(h health) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.since = t.health.since
	if h.state != t.health.state {
		h.since = time.Now()
	}
	t.health = h
}

// leave goes back to ready from one of the given states.
func (t *TPM) leave(states ...keys.State) {
	now := t.state()
	for _, s := range states {
		if now == s {
			t.enter(health{state: keys.StateReady})
		}
	}
}

// note updates the state from an operation's outcome. Any answer ends the states
// without answers; a lockout ends when the device reports that, a changed identity when
// a recorded parent is found again.
func (t *TPM) note(err error) {
	if err == nil || codeOf(err) != tpm2.TPMRCSuccess {
		t.leave(keys.StateAbsent, keys.StateBusy, keys.StateWedged, keys.StateFailed)
	}
	flaw, ok := fault.AsError(err)
	if !ok {
		return
	}
	if state := stateAfter(flaw); state != "" {
		t.enter(health{state: state, reason: flaw.Error(), hint: flaw.Hint, until: t.lockedUntil(flaw)})
	}
}

// stateAfter is the state that a fault puts the device in, if any.
func stateAfter(flaw *fault.Error) keys.State {
	switch flaw.Kind {
	case fault.DeviceAbsent:
		return keys.StateAbsent
	case fault.DeviceFailed:
		return keys.StateFailed
	case fault.DeviceLocked:
		return keys.StateLocked
	case fault.IdentityChanged:
		return keys.StateIdentityChanged
	case fault.Busy:
		if full(codeOf(flaw)) {
			return keys.StateBusy
		}
	case fault.Deadline, fault.DeviceWedged:
		if unanswered(flaw) {
			return keys.StateWedged
		}
	}
	return ""
}

// unanswered reports whether a deadline passed while the device had a command, or did
// not accept a connection. A caller's cancellation does not count.
func unanswered(err error) bool {
	var lost *lostError
	var dial *dialError
	return (errors.As(err, &lost) || errors.As(err, &dial)) && !errors.Is(err, context.Canceled)
}

// lockedUntil is the moment named by a lockout fault, nil when unknown.
func (t *TPM) lockedUntil(flaw *fault.Error) *time.Time {
	if flaw.Kind != fault.DeviceLocked || flaw.RetryAfter <= 0 {
		return nil
	}
	until := time.Now().Add(flaw.RetryAfter)
	return &until
}
