// Package varlink speaks varlink, the protocol of small local services: each
// message is one JSON object that ends in a NUL byte, over a stream socket
// (https://varlink.org/Method-Call). It has the client's side and the service's.
//
// Start at Service.ServeConn for a service and at Conn.Call for a client. The interface
// files are beside the types of their messages, in agentwire and brokerwire.
//
// The service is strict: a member that is unknown, repeated, missing, spelled
// with other capitals or of the wrong type is rejected, because a constraint that
// the service does not know must fail, not vanish. The client is lenient with
// replies, so that a newer service may add members to them.
//
// The package does not identify the caller, does not limit the number of connections
// and does not encrypt: the owner of the listener does the first two, and a Unix
// socket needs no encryption.
package varlink

import (
	"encoding/json"
	"fmt"
)

// MaxMessage is the size in bytes of the largest message that either side takes
// or sends, without the NUL byte at its end.
const MaxMessage = 256 << 10

// The interface that every service has, and its errors
// (https://varlink.org/Service).
const (
	ServiceInterface     = "org.varlink.service"
	InterfaceNotFound    = ServiceInterface + ".InterfaceNotFound"
	MethodNotFound       = ServiceInterface + ".MethodNotFound"
	MethodNotImplemented = ServiceInterface + ".MethodNotImplemented"
	InvalidParameter     = ServiceInterface + ".InvalidParameter"
	PermissionDenied     = ServiceInterface + ".PermissionDenied"
	ExpectedMore         = ServiceInterface + ".ExpectedMore"
)

// Error is a varlink error. A method of a service returns one to send it, and
// Conn.Call returns one that it received.
type Error struct {
	Name       string          // qualified: org.varlink.service.MethodNotFound
	Parameters json.RawMessage // an object, or nil for none
}

// Error returns the name, and the parameters as JSON where there are any.
func (e *Error) Error() string {
	if len(e.Parameters) == 0 || string(e.Parameters) == "{}" {
		return e.Name
	}
	return e.Name + " " + string(e.Parameters)
}

// NewError returns an error with one string parameter, the form that those of
// org.varlink.service have.
func NewError(name, parameter, value string) *Error {
	encoded, err := json.Marshal(map[string]string{parameter: value})
	if err != nil {
		panic("varlink: a map of strings does not encode: " + err.Error())
	}
	return &Error{Name: name, Parameters: encoded}
}

func invalid(member string) *Error {
	return NewError(InvalidParameter, "parameter", member)
}

// request is a method call as it is on the wire.
type request struct {
	Method     string          `json:"method"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
	More       bool            `json:"more,omitempty"`
	Oneway     bool            `json:"oneway,omitempty"`
	Upgrade    bool            `json:"upgrade,omitempty"`
}

// reply is a reply as it is on the wire.
type reply struct {
	Error      string          `json:"error,omitempty"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
	Continues  bool            `json:"continues,omitempty"`
}

// outgoing is a request or a reply whose parameters are not encoded yet, so that
// the message is encoded in one go.
type outgoing struct {
	Method     string `json:"method,omitempty"`
	Error      string `json:"error,omitempty"`
	Parameters any    `json:"parameters,omitempty"`
	More       bool   `json:"more,omitempty"`
	Continues  bool   `json:"continues,omitempty"`
}

var errTooLong = fmt.Errorf("message over the limit of %d bytes", MaxMessage)
