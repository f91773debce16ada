package varlink

import (
	"errors"
	"fmt"
	"time"
)

// Call is one call of a method. It is for the one goroutine that runs the method,
// until the method returns.
type Call struct {
	Method string // qualified: io.holdfast.Agent.GetKey

	request request
	serving *serving
	done    bool  // the final reply was sent
	lost    error // the error of the write that failed; nothing more is sent
}

// More reports whether the caller accepts more than one reply (see Continue).
func (c *Call) More() bool { return c.request.More }

// Stopping is closed when the service wants to stop. A call that lasts, such as
// one that sends changes as they come, should then return.
func (c *Call) Stopping() <-chan struct{} { return c.serving.stopping.Done() }

// Decode stores the parameters in the value that into points to, as Unmarshal
// does. Absent parameters are an object without members.
func (c *Call) Decode(into any) error {
	parameters := c.request.Parameters
	if len(parameters) == 0 || string(parameters) == "null" {
		parameters = []byte("{}")
	}
	if !isObject(parameters) {
		return invalid("parameters")
	}
	return Unmarshal(parameters, into)
}

// Reply sends the one final reply; nil stands for a reply without members. It
// fails when the peer has closed the connection, when a final reply was sent already,
// and when the message would be over MaxMessage, in which case another may follow. A
// oneway call gets no reply: Reply and Continue send nothing.
func (c *Call) Reply(out any) error {
	return c.send(outgoing{Parameters: out}, true)
}

// Continue sends a reply after which others follow. For a caller that accepts
// only one, Continue returns the error ExpectedMore.
func (c *Call) Continue(out any) error {
	if !c.request.More {
		return &Error{Name: ExpectedMore}
	}
	return c.send(outgoing{Parameters: out, Continues: true}, false)
}

// fail sends an error as the final reply. Its own error ends the connection.
func (c *Call) fail(name string, parameters any) error {
	err := c.send(outgoing{Error: name, Parameters: parameters}, true)
	if c.lost != nil {
		return c.ended()
	}
	return err
}

// send writes one message in one write, so that one read of the peer gets all of it.
func (c *Call) send(message outgoing, final bool) error {
	switch {
	case c.lost != nil:
		return c.lost
	case c.done:
		return fmt.Errorf("%s has replied already", c.Method)
	case c.request.Oneway:
		c.done = final
		return nil
	}
	if message.Parameters == nil {
		message.Parameters = struct{}{}
	}
	frame, err := encode(message)
	if err != nil {
		return fmt.Errorf("encode reply of %s: %w", c.Method, err)
	}
	if final {
		c.serving.replying.Store(true) // before the peer can send its next request
	}
	// Without the deadline, a peer that does not read would block the call, and the
	// device that the method may use.
	c.serving.conn.SetWriteDeadline(time.Now().Add(c.serving.whole))
	if _, err := c.serving.conn.Write(frame); err != nil {
		c.lost = fmt.Errorf("write: %w", err)
		return c.lost
	}
	c.done = final
	return nil
}

// ended returns what ServeConn returns after a write failed.
func (c *Call) ended() error {
	switch {
	case gone(c.lost):
		return nil
	case timedOut(c.lost):
		return errors.Join(ErrSlow, c.lost)
	}
	return c.lost
}
