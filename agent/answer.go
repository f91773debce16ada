package agent

import (
	"context"
	"errors"

	"holdfast/agent/prompt"
	"holdfast/internal/fault"
)

// The outcomes of a prompt, as the metrics name them. A prompt is withdrawn when the
// last request that waits for it has left.
const (
	promptAnswered    = "answered"
	promptClosed      = "closed"
	promptLate        = "timed-out"
	promptWithdrawn   = "withdrawn"
	promptUnreachable = "unreachable"
)

// unanswered is the error of a prompt that got no answer.
type unanswered struct {
	outcome string
	error   // the prompt's
}

// Unwrap returns the prompt's error.
func (u *unanswered) Unwrap() error { return u.error }

// outcomeOfPrompt returns the outcome of the prompt that ended with err, and nothing
// for any other error.
func outcomeOfPrompt(err error) string {
	var u *unanswered
	if errors.As(err, &u) {
		return u.outcome
	}
	return ""
}

// prompted calls ask, which asks a user, and counts the outcome. The argument what is
// pin or confirm.
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

// explain returns the error for a caller whose prompt ended with err: wanted, with the
// prompt's own message and next step, or with the reason why there was no answer.
func explain(err error, wanted fault.Error) error {
	var u *unanswered
	switch {
	case errors.As(err, &u):
		if said, ok := fault.AsError(u.error); ok && said.Kind == wanted.Kind {
			wanted.Message, wanted.Hint, wanted.Next = said.Message, said.Hint, said.Next // not its cause, which may be a deadline that is not the caller's
		}
	case named(err): // by the device
		return err
	case errors.Is(err, errJustClosed):
		wanted.Message += ", and the prompt was closed a moment ago"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		wanted.Message += ", and nobody answered the prompt in time"
	default:
		return err
	}
	return &wanted
}

func named(err error) bool { _, ok := fault.AsError(err); return ok }
