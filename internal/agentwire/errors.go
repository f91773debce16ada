package agentwire

import "holdfast/internal/fault"

// Errors translates the errors of the agent.
func Errors() fault.Interface {
	return fault.Interface{Name: Interface, Service: "agent", Kinds: fault.Kinds()}
}
