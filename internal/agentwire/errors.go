package agentwire

import "holdfast/internal/fault"

func faults() fault.Interface {
	return fault.Interface{Name: Interface, Service: "agent", Kinds: fault.Kinds()}
}

// ErrorName is [fault.Interface.ErrorName] of the agent.
func ErrorName(kind fault.Kind) string { return faults().ErrorName(kind) }

// KindOf is [fault.Interface.KindOf] of the agent.
func KindOf(errorName string) (fault.Kind, bool) { return faults().KindOf(errorName) }

// FromError is [fault.Interface.FromError] of the agent.
func FromError(err error) (name string, p fault.Parameters) { return faults().FromError(err) }

// ToError is [fault.Interface.ToError] of the agent.
func ToError(name string, p fault.Parameters) (*fault.Error, bool) { return faults().ToError(name, p) }
