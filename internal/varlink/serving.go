package varlink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// past is a deadline that is over: setting it interrupts a read.
var past = time.Unix(1, 0)

// serving is one connection of a service.
type serving struct {
	service  *Service
	conn     net.Conn
	stopping context.Context // when it ends, no further request is taken
	calls    context.Context // the parent of the contexts that methods get
	in       framer
	idle     time.Duration
	whole    time.Duration
	overflow bool        // the peer has filled the read-ahead during a call
	replying atomic.Bool // the final reply is being sent, or was
}

// next returns the next request, or nil when there will be none.
func (c *serving) next() ([]byte, error) {
	frame, ok := c.in.frame()
	if ok && c.stopping.Err() == nil {
		return frame, nil
	}
	if c.in.empty() {
		if err := c.read(c.idle); err != nil {
			return nil, c.ended(err)
		}
		if frame, ok := c.in.frame(); ok {
			return frame, nil
		}
	}
	return c.rest()
}

// rest reads until the request in the buffer is whole. The time for that is fixed
// when it begins: further bytes do not extend it.
func (c *serving) rest() ([]byte, error) {
	until := time.Now().Add(c.whole)
	for {
		if err := c.read(time.Until(until)); err != nil {
			return nil, c.ended(err)
		}
		if frame, ok := c.in.frame(); ok {
			return frame, nil
		}
	}
}

// read fills the buffer once. The context is looked at after the deadline is set,
// so that its end either is seen here or interrupts the read.
func (c *serving) read(timeout time.Duration) error {
	c.conn.SetReadDeadline(time.Now().Add(timeout))
	if err := c.stopping.Err(); err != nil {
		return err
	}
	return c.in.fill()
}

// ended returns what ServeConn returns after a read failed with err.
func (c *serving) ended(err error) error {
	switch {
	case c.stopping.Err() != nil:
		return nil
	case errors.Is(err, errTooLong):
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	case errors.Is(err, ErrBusy):
		return fmt.Errorf("%w: %d bytes of a request had arrived", err, c.in.n)
	case gone(err) && !c.in.empty():
		return fmt.Errorf("%w: cut off after %d bytes", ErrMalformed, c.in.n)
	case gone(err), timedOut(err) && c.in.empty():
		return nil
	case timedOut(err):
		return fmt.Errorf("%w: %d bytes of a request in %v", ErrSlow, c.in.n, c.whole)
	}
	return fmt.Errorf("read: %w", err)
}

// answer carries out one request. Its error ends the connection.
func (c *serving) answer(frame []byte) error {
	request, err := parseRequest(frame)
	c.in.drop()
	var refusal *Error
	if err != nil && !errors.As(err, &refusal) {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	// An error is a reply too, and a oneway call gets none, so both go through a Call.
	call := &Call{Method: request.Method, request: request, serving: c}
	if err == nil {
		err = c.run(call)
	}
	return c.finish(call, err)
}

// run finds the method and calls it, while watch detects that the peer closes the connection.
func (c *serving) run(call *Call) error {
	method, err := c.service.method(call.Method)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.calls)
	c.replying.Store(false)
	stop := c.watch(cancel)
	defer stop()
	defer cancel()
	return method(ctx, call)
}

// finish sends the error of a call that has not been answered yet.
func (c *serving) finish(call *Call, err error) error {
	switch {
	case call.lost != nil:
		return call.ended()
	case call.done:
		return nil
	case err == nil:
		err = fmt.Errorf("%s returned without a reply", call.Method)
	}
	var named *Error
	if errors.As(err, &named) {
		return call.fail(named.Name, parametersOf(named))
	}
	if c.service.OnError == nil {
		return err
	}
	return call.fail(c.service.OnError(err))
}

// parametersOf avoids an interface that holds a nil slice, which would encode as
// null.
func parametersOf(e *Error) any {
	if len(e.Parameters) == 0 {
		return nil
	}
	return e.Parameters
}

// gone reports whether the peer, or this side, closed the connection.
func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || reset(err)
}

// timedOut reports whether a deadline ended a read or a write, of any net.Conn.
func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
