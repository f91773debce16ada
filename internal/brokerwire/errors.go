package brokerwire

import "holdfast/internal/fault"

// The kinds of failure that the broker has besides those of package fault.
const (
	AgentUnreachable fault.Kind = "agent-unreachable" // there is no agent to ask
	Upstream         fault.Kind = "upstream"          // the cluster cannot be reached, or refuses; RetryAfter says when to try again
)

// Kinds lists every kind that the broker answers with, in the order of the
// interface file.
func Kinds() []fault.Kind { return append(fault.Kinds(), AgentUnreachable, Upstream) }

func faults() fault.Interface {
	return fault.Interface{Name: Interface, Service: "broker", Kinds: Kinds()}
}

// ErrorName is [fault.Interface.ErrorName] of the broker.
func ErrorName(kind fault.Kind) string { return faults().ErrorName(kind) }

// KindOf is [fault.Interface.KindOf] of the broker.
func KindOf(errorName string) (fault.Kind, bool) { return faults().KindOf(errorName) }

// FromError is [fault.Interface.FromError] of the broker.
func FromError(err error) (name string, p fault.Parameters) { return faults().FromError(err) }

// ToError is [fault.Interface.ToError] of the broker.
func ToError(name string, p fault.Parameters) (*fault.Error, bool) { return faults().ToError(name, p) }
