// Package fault has the errors of the varlink interface io.holdfast.Broker: those
// of package keys, and two of the broker's own. The broker and its callers share
// it; a test holds it to the interface file.
//
// Start at [From] and [To]. The plugin goes without it: it wants to be small, and
// tells errors apart by their names.
package fault

import (
	"holdfast/agent/keys"
	agentwire "holdfast/agent/wire"
	"holdfast/client/broker/wire"
)

// The kinds of failure that the broker has besides those of package keys.
const (
	AgentUnreachable keys.Kind = "agent-unreachable" // there is no agent to ask
	Upstream         keys.Kind = "upstream"          // the cluster cannot be reached, or refuses; RetryAfter says when to try again
)

// Kinds lists every kind that the broker answers with, in the order of the
// interface file.
func Kinds() []keys.Kind { return append(keys.Kinds(), AgentUnreachable, Upstream) }

// Parameters is the parameters of every error of the interface.
type Parameters = agentwire.ErrorParameters

func brokerErrors() agentwire.Errors {
	return agentwire.Errors{Interface: wire.Interface, Service: "broker", Kinds: Kinds()}
}

// Name returns the varlink error of a kind: io.holdfast.Broker.PINRequired
// for pin-required.
func Name(kind keys.Kind) string { return brokerErrors().Name(kind) }

// KindOf returns the kind that a varlink error stands for, and false for an
// error that is not of this interface or newer than this program.
func KindOf(errorName string) (keys.Kind, bool) { return brokerErrors().KindOf(errorName) }

// From returns the varlink error for err. Its cause stays on this side; an
// error that is no keys.Error crosses as Internal without its text.
func From(err error) (name string, parameters Parameters) { return brokerErrors().From(err) }

// To returns the error that a varlink error stands for, and false when the
// error is not of this interface.
func To(name string, p Parameters) (*keys.Error, bool) { return brokerErrors().To(name, p) }
