// Package fault describes a failure: its [Kind], one fact, and the next step. Start at
// [Error]. The agent, the broker, the device backends and every client share it;
// [Interface] translates it for a socket.
//
// It depends on the standard library alone, without cryptography, so that the
// smallest programs can use it.
package fault

import (
	"cmp"
	"errors"
	"time"
)

// A Kind is a class of failure that a caller can act on. The list crosses the wire:
// it is append-only.
type Kind string

// The kinds of failure.
const (
	Denied          Kind = "denied"           // policy does not allow it, or there is no such key: the two look the same
	BadRequest      Kind = "bad-request"      // the request or the message in it is malformed
	WrongPurpose    Kind = "wrong-purpose"    // the key exists for something else
	NotFound        Kind = "not-found"        // an object other than a key is missing
	Busy            Kind = "busy"             // the queue or the device is full; RetryAfter says when to try again
	Deadline        Kind = "deadline"         // the device did not answer in time
	PINRequired     Kind = "pin-required"     // the key needs a PIN that the agent does not have
	PINBlocked      Kind = "pin-blocked"      // no PIN tries are left, or the rest are reserved for the user
	TouchTimeout    Kind = "touch-timeout"    // the device was not touched in time
	DeviceAbsent    Kind = "device-absent"    // there is no such device now
	DeviceLocked    Kind = "device-locked"    // dictionary-attack lockout; RetryAfter says until when
	DeviceWedged    Kind = "device-wedged"    // the device accepts commands and does not answer
	DeviceFailed    Kind = "device-failed"    // the device reports a failure
	IdentityChanged Kind = "identity-changed" // the device was cleared or is another one
	KeyLost         Kind = "key-lost"         // the device no longer accepts this key
	KeyMismatch     Kind = "key-mismatch"     // a signature does not verify under the recorded public key
	Unsupported     Kind = "unsupported"      // this agent or device cannot do it
	Internal        Kind = "internal"         // a defect or a failing disk

	// ConfirmationRequired: the key needs the user's confirmation, which was not given
	// or cannot be requested.
	ConfirmationRequired Kind = "confirmation-required"
)

// Kinds lists every kind in the order in which it was added.
func Kinds() []Kind {
	return []Kind{
		Denied, BadRequest, WrongPurpose, NotFound, Busy, Deadline, PINRequired, PINBlocked, TouchTimeout,
		DeviceAbsent, DeviceLocked, DeviceWedged, DeviceFailed, IdentityChanged, KeyLost, KeyMismatch,
		Unsupported, Internal, ConfirmationRequired,
	}
}

// An Error is a failure that a caller sees: its kind, one fact, and the next step.
// It never holds a secret, a preimage or a claim value.
type Error struct {
	Kind       Kind
	Message    string        // one fact, lower case, no full stop
	Next       Next          // the next step, where programs act on it
	Hint       string        // the next step in words; empty where Next says it, or there is none
	RetryAfter time.Duration // with Busy and DeviceLocked: when another try makes sense; zero when unknown
	Err        error         // the cause, for logs on this side of the socket; may be nil
}

// Advice returns the next step as a user reads it: Hint, else Next in words. It
// is empty when there is none.
func (e *Error) Advice() string { return cmp.Or(e.Hint, e.Next.String()) }

// Error returns the message, and the cause behind it when there is one.
func (e *Error) Error() string {
	if e.Err != nil {
		return e.Message + ": " + e.Err.Error()
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an *Error of the same kind, so that
// errors.Is(err, &fault.Error{Kind: fault.Busy}) asks for a kind.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Kind == e.Kind && (t.Message == "" || t.Message == e.Message)
}

// KindOf returns the kind of the first [Error] in err's chain, Internal for any
// other error, and the empty Kind for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	if e, ok := AsError(err); ok {
		return e.Kind
	}
	return Internal
}

// AsError returns the first [Error] in err's chain.
func AsError(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}
