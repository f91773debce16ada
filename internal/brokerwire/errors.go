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

// Errors translates the errors of the broker.
func Errors() fault.Interface {
	return fault.Interface{Name: Interface, Service: "broker", Kinds: Kinds()}
}
