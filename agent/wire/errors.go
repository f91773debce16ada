package wire

import (
	"strings"
	"time"

	"holdfast/agent/keys"
)

// ErrorParameters is the parameters of every error of the interface.
type ErrorParameters struct {
	Message      string `json:"message"`
	Hint         string `json:"hint,omitempty"`
	RetryAfterMS int64  `json:"retryAfterMS,omitempty"`
}

// ErrorName returns the varlink error of a kind: io.holdfast.Agent.PINRequired
// for pin-required.
func ErrorName(kind keys.Kind) string {
	var b strings.Builder
	b.WriteString(Interface + ".")
	for _, word := range strings.Split(string(kind), "-") {
		if word == "pin" {
			b.WriteString("PIN")
			continue
		}
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// KindOf returns the kind that a varlink error stands for, and false for an
// error that is not of this interface or newer than this program.
func KindOf(errorName string) (keys.Kind, bool) {
	for _, kind := range keys.Kinds() {
		if ErrorName(kind) == errorName {
			return kind, true
		}
	}
	return "", false
}

// FromError returns the varlink error for err. Its cause stays on this side;
// an error that is no keys.Error crosses as Internal without its text.
func FromError(err error) (name string, parameters ErrorParameters) {
	e, ok := keys.AsError(err)
	if !ok {
		e = &keys.Error{Kind: keys.Internal, Message: "internal error", Hint: "the agent's log has the cause"}
	}
	return ErrorName(e.Kind), ErrorParameters{Message: e.Message, Hint: e.Hint, RetryAfterMS: e.RetryAfter.Milliseconds()}
}

// ToError returns the error that a varlink error stands for, and false when the
// error is not of this interface.
func ToError(name string, p ErrorParameters) (*keys.Error, bool) {
	kind, ok := KindOf(name)
	if !ok {
		return nil, false
	}
	return &keys.Error{
		Kind: kind, Message: p.Message, Hint: p.Hint,
		RetryAfter: time.Duration(p.RetryAfterMS) * time.Millisecond,
	}, true
}
