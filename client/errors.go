package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/varlink"
)

// explain turns the error of a call into a [*fault.Error] when the agent gave an
// answer, an [*UnreachableError] when it gave none, and leaves the errors of
// ctx as they are.
func (c *Client) explain(ctx context.Context, err error) error {
	var answer *varlink.Error
	var unreachable *UnreachableError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answer):
		return fromVarlink(answer)
	case errors.As(err, &unreachable), errors.Is(err, errClosed):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case refused(err):
		return &fault.Error{
			Kind:    fault.Denied,
			Message: fmt.Sprintf("the agent at %s does not talk to uid %d", c.socket, os.Getuid()),
			Hint:    "its policy names who may; or it was restarted at this moment, then try again",
			Err:     err,
		}
	case errors.Is(err, varlink.ErrConnectionLost):
		return &UnreachableError{
			Socket: c.socket, Err: err,
			Reason: fmt.Sprintf("the agent at %s closed the connection before it answered", c.socket),
			Hint:   "its log says why; holdfast doctor looks closer",
		}
	}
	return &fault.Error{
		Kind:    fault.Internal,
		Message: fmt.Sprintf("the agent at %s cannot be understood", c.socket),
		Hint:    "it may be of another age than this program: holdfast status shows its version",
		Err:     err,
	}
}

// silent is the error for an agent that took a call and did not answer in time.
func (c *Client) silent(err error) error {
	return &UnreachableError{
		Socket: c.socket, Err: err,
		Reason: fmt.Sprintf("the agent at %s gave no answer within %s", c.socket, c.timeout),
		Hint:   "it hangs: restart it (systemctl --user restart holdfast-agent), and look at its log",
	}
}

// fromVarlink returns the fault.Error that an error reply stands for. The errors
// of varlink itself mean that the two programs are of different ages.
func fromVarlink(e *varlink.Error) error {
	var p fault.Parameters
	if err := json.Unmarshal(e.Parameters, &p); err == nil {
		if known, ok := agentwire.ToError(e.Name, p); ok {
			return known
		}
	}
	name, standard := strings.CutPrefix(e.Name, "org.varlink.service.")
	if !standard {
		return &fault.Error{Kind: fault.Internal, Message: fmt.Sprintf("the agent answered %.100q, which this program does not know", e.Name), Hint: "update this program"}
	}
	var about struct{ Method, Parameter, Interface string }
	_ = json.Unmarshal(e.Parameters, &about) // what is missing from the parameters is missing from the text
	what := about.Method + about.Parameter + about.Interface
	if name == "InvalidParameter" {
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("the agent does not take the parameter %.100q as it was sent", what), Hint: "it may be older than this program: holdfast status shows its version"}
	}
	return &fault.Error{Kind: fault.Unsupported, Message: fmt.Sprintf("the agent does not know %.100q (%s)", what, name), Hint: "it may be older than this program: holdfast status shows its version"}
}

// refused reports whether a connection was closed with the request unread. The
// agent does that to callers whom its policy does not name; one that dies in a
// call has read the request first.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
