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

// Errors are the errors of one varlink interface: those of the agent, and those
// of the broker, who has the agent's and a few more.
type Errors struct {
	Interface string      // io.holdfast.Agent
	Service   string      // whose log has the cause of an internal error: agent
	Kinds     []keys.Kind // the kinds that cross
}

func agentErrors() Errors {
	return Errors{Interface: Interface, Service: "agent", Kinds: keys.Kinds()}
}

// Name returns the varlink error of a kind: io.holdfast.Agent.PINRequired for
// pin-required.
func (s Errors) Name(kind keys.Kind) string {
	var b strings.Builder
	b.WriteString(s.Interface + ".")
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
func (s Errors) KindOf(errorName string) (keys.Kind, bool) {
	for _, kind := range s.Kinds {
		if s.Name(kind) == errorName {
			return kind, true
		}
	}
	return "", false
}

// From returns the varlink error for err. Its cause stays on this side; an error
// that is no keys.Error crosses as Internal without its text.
func (s Errors) From(err error) (name string, parameters ErrorParameters) {
	e, ok := keys.AsError(err)
	if !ok {
		e = &keys.Error{Kind: keys.Internal, Message: "internal error", Hint: "the " + s.Service + "'s log has the cause"}
	}
	return s.Name(e.Kind), ErrorParameters{Message: e.Message, Hint: e.Hint, RetryAfterMS: e.RetryAfter.Milliseconds()}
}

// To returns the error that a varlink error stands for, and false when the error
// is not of this interface.
func (s Errors) To(name string, p ErrorParameters) (*keys.Error, bool) {
	kind, ok := s.KindOf(name)
	if !ok {
		return nil, false
	}
	return &keys.Error{
		Kind: kind, Message: p.Message, Hint: p.Hint,
		RetryAfter: time.Duration(p.RetryAfterMS) * time.Millisecond,
	}, true
}

// ErrorName is [Errors.Name] of the agent.
func ErrorName(kind keys.Kind) string { return agentErrors().Name(kind) }

// KindOf is [Errors.KindOf] of the agent.
func KindOf(errorName string) (keys.Kind, bool) { return agentErrors().KindOf(errorName) }

// FromError is [Errors.From] of the agent.
func FromError(err error) (name string, parameters ErrorParameters) { return agentErrors().From(err) }

// ToError is [Errors.To] of the agent.
func ToError(name string, p ErrorParameters) (*keys.Error, bool) { return agentErrors().To(name, p) }
