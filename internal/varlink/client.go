package varlink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
)

// ErrConnectionLost is in the chain of every *LostError.
var ErrConnectionLost = errors.New("connection lost")

// LostError is returned when the connection ended before the final reply arrived.
type LostError struct {
	// Sent is set when the whole request was written: the service may have carried it
	// out. Otherwise the service has not received the request.
	Sent  bool
	Cause error
}

// Error says when the connection was lost and why.
func (e *LostError) Error() string {
	when := "before the request was sent"
	if e.Sent {
		when = "while waiting for the reply"
	}
	return fmt.Sprintf("%v %s: %v", ErrConnectionLost, when, e.Cause)
}

// Is reports whether target is ErrConnectionLost.
func (e *LostError) Is(target error) bool { return target == ErrConnectionLost }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// Conn is the client's end of a connection. It carries one call at a time; further
// calls wait.
type Conn struct {
	conn net.Conn
	in   framer
	turn chan struct{} // holds one token while no call runs
}

// NewConn returns a Conn that owns c.
func NewConn(c net.Conn) *Conn {
	conn := &Conn{conn: c, in: framer{from: c}, turn: make(chan struct{}, 1)}
	conn.turn <- struct{}{}
	return conn
}

// Close closes the connection, which cancels a call in progress.
func (c *Conn) Close() error { return c.conn.Close() }

// Call calls a method with the parameters in, and decodes those of the reply into
// out; nil stands for none, and for a reply that is of no interest. An error that
// the service sent is an *Error; a connection that ended is a *LostError. When
// ctx ends first, Call closes the connection, which cancels the call at the
// service, and returns an error that wraps that of ctx.
func (c *Conn) Call(ctx context.Context, method string, in, out any) error {
	var parameters json.RawMessage
	err := c.call(ctx, outgoing{Method: method, Parameters: in}, func(p json.RawMessage, _ bool) error {
		parameters = p
		return nil
	})
	if err != nil || out == nil || len(parameters) == 0 {
		return err
	}
	if err := json.Unmarshal(parameters, out); err != nil {
		return fmt.Errorf("reply of %s: %w", method, err)
	}
	return nil
}

// CallMore calls a method that may reply more than once, and hands each reply to
// each, the last with continues false. The reply belongs to each. An error of
// each closes the connection, which cancels the call, and is returned. Otherwise
// it is as Call.
func (c *Conn) CallMore(ctx context.Context, method string, in any, each func(reply json.RawMessage, continues bool) error) error {
	return c.call(ctx, outgoing{Method: method, Parameters: in, More: true}, each)
}

// call makes a call once no other is in progress.
func (c *Conn) call(ctx context.Context, message outgoing, each func(json.RawMessage, bool) error) error {
	frame, err := encode(message)
	if err != nil {
		return fmt.Errorf("%s: %w", message.Method, err)
	}
	if err := c.wait(ctx); err != nil {
		return fmt.Errorf("%s: %w", message.Method, err)
	}
	defer func() { c.turn <- struct{}{} }()
	// Closing the connection cancels the call at the service. A deadline would leave
	// the reply in the stream, where the next call would take it for its own.
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	keep, err := c.exchange(frame, each)
	if ended := !stop(); ended {
		keep = false
		if errors.Is(err, ErrConnectionLost) {
			err = fmt.Errorf("%s: %w", message.Method, ctx.Err())
		}
	}
	if !keep {
		c.conn.Close()
	}
	return err
}

// wait takes the token. It fails for a context that has ended: the call would only
// close the connection.
func (c *Conn) wait(ctx context.Context) error {
	select {
	case <-c.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		c.turn <- struct{}{}
		return err
	}
	return nil
}

// exchange sends one request and takes its replies. keep reports whether the
// connection can carry another call.
func (c *Conn) exchange(frame []byte, each func(json.RawMessage, bool) error) (keep bool, err error) {
	if _, err := c.conn.Write(frame); err != nil {
		return false, &LostError{Cause: err}
	}
	for {
		r, err := c.receive()
		if err != nil {
			return false, err
		}
		if r.Error != "" {
			return true, &Error{Name: r.Error, Parameters: r.Parameters}
		}
		if err := each(r.Parameters, r.Continues); err != nil {
			return !r.Continues, err
		}
		if !r.Continues {
			return true, nil
		}
	}
}

// receive reads one reply, whose parameters are its own copy.
func (c *Conn) receive() (reply, error) {
	frame, ok := c.in.frame()
	for !ok {
		if err := c.in.fill(); err != nil {
			return reply{}, c.lost(err)
		}
		frame, ok = c.in.frame()
	}
	var r reply
	if err := json.Unmarshal(frame, &r); err != nil {
		return reply{}, fmt.Errorf("reply: %w: %w", ErrMalformed, err)
	}
	if !isObject(frame) {
		return reply{}, fmt.Errorf("reply: %w: not an object", ErrMalformed)
	}
	c.in.drop()
	return r, nil
}

// lost returns the error for a read that failed. The service may close after it
// has carried out the request, so no read can tell whether it has.
func (c *Conn) lost(err error) error {
	if errors.Is(err, errTooLong) || c.in.foreign() {
		return fmt.Errorf("reply: %w: %w", ErrMalformed, err)
	}
	return &LostError{Sent: true, Cause: err}
}
