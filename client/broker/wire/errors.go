package wire

import (
	"holdfast/agent/keys"
	agentwire "holdfast/agent/wire"
)

// The kinds of failure that the broker has besides those of package keys.
const (
	AgentUnreachable keys.Kind = "agent-unreachable" // there is no agent to ask
	Upstream         keys.Kind = "upstream"          // the cluster cannot be reached, or refuses; RetryAfter says when to try again
)

// Kinds lists every kind that the broker answers with, in the order of the
// interface file.
func Kinds() []keys.Kind { return append(keys.Kinds(), AgentUnreachable, Upstream) }

// ErrorParameters is the parameters of every error of the interface.
type ErrorParameters = agentwire.ErrorParameters

func brokerErrors() agentwire.Errors {
	return agentwire.Errors{Interface: Interface, Service: "broker", Kinds: Kinds()}
}

// ErrorName returns the varlink error of a kind: io.holdfast.Broker.PINRequired
// for pin-required.
func ErrorName(kind keys.Kind) string { return brokerErrors().Name(kind) }

// KindOf returns the kind that a varlink error stands for, and false for an
// error that is not of this interface or newer than this program.
func KindOf(errorName string) (keys.Kind, bool) { return brokerErrors().KindOf(errorName) }

// FromError returns the varlink error for err. Its cause stays on this side; an
// error that is no keys.Error crosses as Internal without its text.
func FromError(err error) (name string, parameters ErrorParameters) { return brokerErrors().From(err) }

// ToError returns the error that a varlink error stands for, and false when the
// error is not of this interface.
func ToError(name string, p ErrorParameters) (*keys.Error, bool) { return brokerErrors().To(name, p) }
