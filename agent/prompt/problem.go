package prompt

import (
	"context"
	"errors"
	"fmt"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// The ways in which a conversation with a pinentry ends, besides an answer,
// [ErrClosed] and [ErrLate].
var (
	errGone      = errors.New("the caller has ended")         // or is in the background now
	errUnusable  = errors.New("pinentry cannot be used here") // another one may do
	errNoDesktop = errors.New("neither DISPLAY nor WAYLAND_DISPLAY is known")
	errTextual   = errors.New("pinentry would ask on a terminal") // where only a desktop may be used
)

// problem returns an error that a user sees. [Prompter.fail] adds its kind and
// its next step.
func problem(message string, err error) *fault.Error {
	return &fault.Error{Message: message, Err: err}
}

// fail returns the error of PIN or Confirm for err.
func (p *Prompter) fail(ctx context.Context, kind fault.Kind, s Subject, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		err = ctx.Err() // rather than the cause that its owner gave
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", ErrLate, err)
	}
	e, shown := fault.AsError(err)
	if !shown {
		e = problem(fact(kind, err), err)
	}
	e.Kind = kind
	advise(e, s.Key)
	p.log().Debug("prompt not answered", "key", s.Key, "pid", s.PID, "kind", string(kind), "error", e.Error())
	return e
}

// fact describes how a prompt ended.
func fact(kind fault.Kind, err error) string {
	what := "the PIN prompt"
	if kind == fault.ConfirmationRequired {
		what = "the question on the desktop"
	}
	switch {
	case errors.Is(err, ErrClosed) && kind == fault.ConfirmationRequired:
		return "the use of the key was refused on the desktop"
	case errors.Is(err, ErrClosed):
		return what + " was closed"
	case errors.Is(err, ErrLate):
		return what + " was not answered in time"
	case errors.Is(err, errGone), errors.Is(err, context.Canceled):
		return what + " was withdrawn: its caller no longer waits"
	}
	return what + " cannot be shown"
}

// advise sets e's next step unless it has a hint of its own: a PIN can always be
// given to `holdfast unlock`, a confirmation only on the desktop.
func advise(e *fault.Error, key string) {
	if keys.CheckName(key) != nil {
		key = "" // not shown as a part of a command
	}
	unlock := fault.Next{Do: fault.Unlock, Key: key}
	switch {
	case e.Kind == fault.ConfirmationRequired && e.Hint == "":
		e.Hint = "use the key where you are logged in on the desktop"
	case e.Kind == fault.PINRequired && e.Hint == "":
		e.Next = unlock
	case e.Next.Do == fault.Unlock: // one of two ways
		e.Next = unlock
		e.Hint += ", or: " + unlock.String()
	}
}
