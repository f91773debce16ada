package varlink

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strings"
	"time"
)

// Service answers calls. Its fields must not change once it serves; ServeConn may
// run for any number of connections at once.
type Service struct {
	// What GetInfo of org.varlink.service replies.
	Vendor, Product, Version, URL string

	// Interfaces that the service has besides org.varlink.service.
	Interfaces []Interface

	// ReadTimeout is how long a request may take from its first byte to its last,
	// and a reply until the peer has taken it. Zero means 5 s.
	ReadTimeout time.Duration

	// IdleTimeout is how long a connection may stay without a request. Zero means
	// 30 s.
	IdleTimeout time.Duration

	// BigBytes is how many bytes the requests of all connections may hold together
	// beyond the 2 KiB of each connection. A request counts by its buffer, of up to
	// MaxMessage bytes, from its arrival until its call is answered. When all bytes
	// are in use, the service ends a connection whose request needs more; smaller
	// requests are not affected. Zero means 32 MiB.
	BigBytes int64

	// OnError returns the varlink error to send for an error of a method that is
	// not an *Error. Without OnError such an error ends the connection.
	OnError func(err error) (name string, parameters any)

	big budget // the bytes in use of BigBytes
}

// Interface is one interface of a service.
type Interface struct {
	Name        string            // reverse-domain name: io.holdfast.Agent
	Description string            // the text of the interface file
	Methods     map[string]Method // by the name without the interface's
}

// Method carries out one call: it decodes the parameters, and sends one reply or
// returns an error. An *Error in its chain is sent as it is, others go through
// Service.OnError. The context ends when the peer closes the connection.
type Method func(ctx context.Context, call *Call) error

// The errors of ServeConn that are the peer's fault.
var (
	// ErrMalformed is a message that is no JSON object, is too long, or was cut off.
	ErrMalformed = errors.New("malformed message")
	// ErrSlow is a request that was not whole, or a reply that was not taken, in time.
	ErrSlow = errors.New("peer too slow")
	// ErrPipelined is a peer that sent 2 KiB or more of further requests while a
	// call ran.
	ErrPipelined = errors.New("too much sent during a call")
)

// ServeConn answers the calls that arrive on conn, one at a time and in order,
// and closes it. It returns nil when the peer has closed the connection between
// two requests or in a call, when it was idle for too long, and when ctx ended;
// otherwise an error that says why it closed the connection: ErrMalformed, ErrSlow, ErrBusy,
// ErrPipelined, or what the connection returned.
//
// When ctx ends an idle connection is closed at once, while a call that runs may
// finish and reply. To end such a call as well, close conn.
//
// A connection carries one call at a time. A request that arrives while a call
// runs waits. A peer that closes the connection, or only its sending
// half, cancels the call. To detect that, the service reads ahead; a peer that
// fills the 2 KiB for it, after which its close would go undetected, cancels the call
// too, and the connection ends once the call has returned.
func (s *Service) ServeConn(ctx context.Context, conn net.Conn) error {
	defer conn.Close()
	c := &serving{
		service:  s,
		conn:     conn,
		stopping: ctx,
		calls:    context.WithoutCancel(ctx),
		in:       framer{from: conn, share: share{of: &s.big, limit: cmp.Or(s.BigBytes, 32<<20)}},
		idle:     cmp.Or(s.IdleTimeout, 30*time.Second),
		whole:    cmp.Or(s.ReadTimeout, 5*time.Second),
	}
	defer c.in.share.shrink(0)
	defer context.AfterFunc(ctx, func() { conn.SetReadDeadline(past) })()
	for {
		frame, err := c.next()
		if err != nil || frame == nil {
			return err
		}
		// A call needs far more stack than waiting for one. It runs in a goroutine of
		// its own, so that an idle connection keeps little memory.
		answered := make(chan error, 1)
		go func() { answered <- c.answer(frame) }()
		err = <-answered
		c.in.settle()
		switch {
		case c.overflow:
			return ErrPipelined
		case err != nil:
			return err
		}
	}
}

// method returns the method with a qualified name, or the error for the caller.
func (s *Service) method(qualified string) (Method, error) {
	dot := strings.LastIndexByte(qualified, '.')
	if dot < 1 {
		return nil, invalid("method")
	}
	name, short := qualified[:dot], qualified[dot+1:]
	if name == ServiceInterface {
		return s.introspection(short)
	}
	for _, in := range s.Interfaces {
		if in.Name == name {
			return in.method(short)
		}
	}
	return nil, NewError(InterfaceNotFound, "interface", name)
}

// method returns the method with a short name. A nil method is in the interface
// file and not implemented.
func (in *Interface) method(short string) (Method, error) {
	m, ok := in.Methods[short]
	switch {
	case !ok:
		return nil, NewError(MethodNotFound, "method", in.Name+"."+short)
	case m == nil:
		return nil, NewError(MethodNotImplemented, "method", in.Name+"."+short)
	}
	return m, nil
}

// parseRequest reads the outer object. A connection is never upgraded to another
// protocol. It returns an *Error for a request that is refused with a reply, and
// another error for one that cannot be parsed.
func parseRequest(frame []byte) (request, error) {
	var r request
	if !isObject(frame) {
		return r, errors.New("not an object")
	}
	if err := Unmarshal(frame, &r); err != nil {
		return r, err
	}
	if r.Upgrade {
		return r, invalid("upgrade")
	}
	return r, nil
}
