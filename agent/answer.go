package agent

import (
	"context"
	"errors"

	"holdfast/agent/prompt"
	"holdfast/internal/fault"
)

// What came of a prompt, as the metrics name it. A prompt is withdrawn when nobody
// waits for it any more.
const (
	promptAnswered    = "answered"
	promptClosed      = "closed"
	promptLate        = "timed-out"
	promptWithdrawn   = "withdrawn"
	promptUnreachable = "unreachable"
)

// unanswered is the error of a prompt to which there was no answer.
type unanswered struct {
	outcome string
	err     error
}

// Error returns what the prompt said.
func (u *unanswered) Error() string { return u.err.Error() }

// Unwrap returns what the prompt said.
func (u *unanswered) Unwrap() error { return u.err }

// outcomeOfPrompt returns what came of the prompt that err is about, and nothing
// when it is about something else.
func outcomeOfPrompt(err error) string {
	var u *unanswered
	if errors.As(err, &u) {
		return u.outcome
	}
	return ""
}

// prompted has a person asked by ask, and counts what came of it. What is one of
// pin and confirm.
func (a *Agent) prompted(ctx context.Context, what string, ask func(context.Context) error) error {
	err := ask(ctx)
	outcome := promptAnswered
	if err != nil {
		outcome = howUnanswered(ctx, err)
		err = &unanswered{outcome, err}
	}
	a.counts.prompts.Add(1, what, outcome)
	return err
}

func howUnanswered(ctx context.Context, err error) string {
	switch {
	case errors.Is(err, prompt.ErrClosed):
		return promptClosed
	case errors.Is(err, prompt.ErrLate), errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return promptLate
	case ctx.Err() != nil:
		return promptWithdrawn
	}
	return promptUnreachable
}

// explained returns the error for a caller whose prompt ended with err. Wanted is the
// answer where nobody can be asked: it gets what the prompt said, or why nobody
// answered.
func explained(err error, wanted fault.Error) error {
	var u *unanswered
	switch {
	case errors.As(err, &u):
		if said, ok := fault.AsError(u.err); ok && said.Kind == wanted.Kind {
			wanted.Message, wanted.Hint = said.Message, said.Hint // not its cause, which may be a deadline that is not the caller's
		}
	case named(err): // by the device
		return err
	case errors.Is(err, errQuiet):
		wanted.Message += ", and the prompt was closed a moment ago"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		wanted.Message += ", and nobody answered the prompt in time"
	default:
		return err
	}
	return &wanted
}

func named(err error) bool { _, ok := fault.AsError(err); return ok }
