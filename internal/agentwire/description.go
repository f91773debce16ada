package agentwire

import _ "embed" // the interface file

//go:embed io.holdfast.Agent.varlink
var description string

// Description returns the interface file io.holdfast.Agent.varlink.
func Description() string { return description }
