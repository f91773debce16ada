package brokerwire

import _ "embed" // the interface file

//go:embed io.holdfast.Broker.varlink
var description string

// Description returns the interface file io.holdfast.Broker.varlink.
func Description() string { return description }
