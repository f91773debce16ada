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

// explain turns the error of a call into an [*Error] when the agent answered, and an
// [*UnreachableError] when it did not. Errors of ctx stay as they are.
func (c *Client) explain(ctx context.Context, err error) error {
	var answer *varlink.Error
	var unreachable *UnreachableError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answer):
		return c.fromVarlink(answer)
	case errors.As(err, &unreachable), errors.Is(err, errClosed):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case refused(err):
		return &Error{
			Kind:    Denied,
			Message: fmt.Sprintf("the agent at %s rejects connections of uid %d", c.socket, os.Getuid()),
			Hint:    "its policy names the users that may connect; if it was just restarted, try again",
			Err:     err,
		}
	case errors.Is(err, varlink.ErrConnectionLost):
		return &UnreachableError{
			Socket: c.socket, Err: err,
			Reason: fmt.Sprintf("the agent at %s closed the connection before it answered", c.socket),
			Fix:    "its log says why",
			Hint:   "its log says why; holdfast doctor looks closer",
		}
	}
	return &Error{
		Kind:    Internal,
		Message: fmt.Sprintf("the program at %s is not a holdfast agent, or one of another version", c.socket),
		Hint:    "holdfast doctor looks closer; name the agent's socket with HOLDFAST_SOCKET or --socket",
		Err:     err,
	}
}

// silent is the error for an agent that accepted a call and did not answer in time.
func (c *Client) silent(err error) error {
	return &UnreachableError{
		Socket: c.socket, Err: err,
		Reason: fmt.Sprintf("the agent at %s gave no answer within %s", c.socket, c.timeout),
		Hint:   "it hangs: restart it (systemctl --user restart holdfast-agent), and look at its log",
	}
}

// fromVarlink returns the Error that an error reply stands for. The errors
// of varlink itself mean that the two programs have different versions.
func (c *Client) fromVarlink(e *varlink.Error) error {
	var p fault.Parameters
	if err := json.Unmarshal(e.Parameters, &p); err == nil {
		if known, ok := agentwire.Errors().ToError(e.Name, p); ok {
			return known
		}
	}
	name, standard := strings.CutPrefix(e.Name, "org.varlink.service.")
	if !standard {
		return &Error{Kind: Internal, Message: fmt.Sprintf("the agent answered %.100q, which this program does not know", e.Name), Hint: "update this program"}
	}
	var about struct{ Method, Parameter, Interface string }
	_ = json.Unmarshal(e.Parameters, &about) // a missing member is missing from the text
	what := about.Method + about.Parameter + about.Interface
	if name == "InvalidParameter" {
		return &Error{Kind: BadRequest, Message: fmt.Sprintf("the agent does not accept the parameter %.100q as it was sent", what), Hint: "it may be older than this program: holdfast status shows its version"}
	}
	if name == "InterfaceNotFound" {
		return &Error{Kind: Unsupported, Message: fmt.Sprintf("the program at %s is not a holdfast agent", c.socket), Hint: "name the agent's socket with HOLDFAST_SOCKET or --socket"}
	}
	return &Error{Kind: Unsupported, Message: fmt.Sprintf("the agent does not know %.100q (%s)", what, name), Hint: "it may be older than this program: holdfast status shows its version"}
}

// refused reports whether the agent closed a connection with the request unread. It
// does that to callers that its policy does not name. An agent that dies during a
// call has read the request before.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
