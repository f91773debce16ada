package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"holdfast/internal/fault"
)

// strict reads exactly one JSON value, without members that v does not know.
func strict(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("message: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("message: more than one value")
	}
	return nil
}

// FromError returns the reply's form of err. An error that is no fault.Error becomes
// Internal, with its text: both ends are ours, and the text goes to the log.
func FromError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if k, ok := fault.AsError(err); ok {
		return &Error{Kind: k.Kind, Message: k.Message, Hint: k.Hint, Next: k.Next, RetryAfterMS: k.RetryAfter.Milliseconds()}
	}
	return &Error{Kind: fault.Internal, Message: err.Error()}
}

// Leaves adds to e the key that stays on the card: what is "a new key is" or "a new
// key may be".
func (e *Error) Leaves(what, slot string, serial uint32) {
	e.Message = fmt.Sprintf("%s; %s in slot %s of card %d", e.Message, what, slot, serial)
	e.Hint, e.Next = "", fault.Next{Do: fault.Adopt, Slot: slot, Card: serial}
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Keys returns e as the fault.Error that callers see.
func (e *Error) Keys() *fault.Error {
	return &fault.Error{Kind: e.Kind, Message: e.Message, Hint: e.Hint, Next: e.Next, RetryAfter: time.Duration(e.RetryAfterMS) * time.Millisecond}
}
