package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/client/enroll"
	"holdfast/internal/fault"
)

// The exit codes. Scripts rely on them.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3 // there is no agent to ask
	exitDenied      = 4 // the policy denies it
	exitPerson      = 5 // a user has to act: PIN, touch, confirmation
)

// A problem is an error of the tool itself: one fact, one hint and its exit code.
type problem struct {
	message string
	hint    string // the next step in words; empty when there is none
	code    int
	err     error // the cause, already part of message; may be nil
}

func (p *problem) Error() string { return p.message }
func (p *problem) Unwrap() error { return p.err }

// problemf returns a problem; %w in format wraps its cause.
func problemf(code int, hint, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &problem{message: err.Error(), hint: hint, code: code, err: errors.Unwrap(err)}
}

// failf returns a failure with a hint.
func failf(hint, format string, args ...any) error {
	return problemf(exitFailed, hint, format, args...)
}

// personf returns the failure of a command that needs a user's PIN, touch or confirmation.
func personf(hint, format string, args ...any) error {
	return problemf(exitPerson, hint, format, args...)
}

// usagef returns an error about the command line.
func usagef(hint, format string, args ...any) error {
	return problemf(exitUsage, hint, format, args...)
}

// answered is the end of a command that has printed the answer no on stdout.
type answered struct{ code int }

func (answered) Error() string { return "the answer is no" }

// usage says that a command line was not understood.
func usage(cmd *cobra.Command, err error) error {
	var p *problem
	if errors.As(err, &p) {
		return err
	}
	return usagef(cmd.CommandPath()+" --help shows how it is used", "%w", err)
}

// usageError is for arguments that only the command itself can check.
func usageError(err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	if e, ok := fault.AsError(err); ok {
		hint = e.Advice()
	}
	return usagef(hint, "%w", err)
}

// report prints err and returns its exit code.
func (a *app) report(err error) int {
	var no answered
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &no):
		return no.code
	}
	p := explain(err)
	if a.asJSON {
		return a.reportJSON(p)
	}
	a.tell("error", p.message)
	if p.hint != "" {
		a.tell("hint", p.hint)
	}
	return p.code
}

// jsonError is the JSON form of an error.
type jsonError struct {
	Error    string      `json:"error"`
	Kind     fault.Kind  `json:"kind,omitempty"` // as the agent or the broker named it
	Hint     string      `json:"hint,omitempty"`
	Next     *fault.Next `json:"next,omitempty"` // the hint, for programs
	ExitCode int         `json:"exitCode"`
}

// reportJSON prints an error on one line of stderr: stdout may hold an answer already.
func (a *app) reportJSON(p *problem) int {
	out := jsonError{Error: p.message, Hint: p.hint, ExitCode: p.code}
	if e, ok := fault.AsError(p.err); ok {
		out.Kind = e.Kind
		out.Next = nextOf(e.Next)
	}
	e := json.NewEncoder(a.stderr)
	e.SetEscapeHTML(false)
	if err := e.Encode(out); err != nil {
		return exitFailed
	}
	return p.code
}

// nextOf returns a next step, or nil for none.
func nextOf(next fault.Next) *fault.Next {
	if next.Do == "" {
		return nil
	}
	return &next
}

// tell writes text to stderr with its kind on each line: a file with several mistakes
// has one on each line, and text of another party cannot imitate a line of the tool.
func (a *app) tell(what, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(a.stderr, "holdfast: %s: %s\n", what, printable(line))
	}
}

// explain turns any error into fact, hint and exit code.
func explain(err error) *problem {
	var own *problem
	var unreachable *client.UnreachableError
	e, fromAgent := fault.AsError(err)
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &unreachable):
		return &problem{message: err.Error(), hint: unreachable.Hint, code: exitUnreachable, err: err}
	case errors.Is(err, enroll.ErrRequest):
		return &problem{message: factOf(err, e), hint: hintOf(e), code: exitUsage, err: err}
	case fromAgent:
		return &problem{message: factOf(err, e), hint: hintOf(e), code: codeOf(e.Kind), err: err}
	case errors.Is(err, context.Canceled):
		return &problem{message: "interrupted", code: exitFailed, err: err}
	}
	return &problem{message: err.Error(), code: exitFailed, err: err}
}

// aboutKey names the key in the next step of an error that says to unlock one: where
// the agent does not know its name, a command line that can be copied needs it.
func aboutKey(name string, err error) error {
	e, ok := fault.AsError(err)
	if !ok || e.Next.Do != fault.Unlock || e.Next.Key != "" || errors.As(err, new(*problem)) {
		return err
	}
	next := e.Next
	next.Key = name
	return withNext(err, e, next)
}

// withNext returns err, which is or wraps e, with another next step. Words that say
// more than the step stay.
func withNext(err error, e *fault.Error, next fault.Next) error {
	p, changed := *explain(err), *e
	changed.Next = next
	p.hint, p.err = hintOf(&changed), err
	return &p
}

func codeOf(kind fault.Kind) int {
	switch kind {
	case fault.Denied:
		return exitDenied
	case fault.PINRequired, fault.PINBlocked, fault.TouchTimeout, fault.ConfirmationRequired:
		return exitPerson
	}
	return exitFailed
}

// factOf leaves the cause out where the message stands for itself.
func factOf(err error, e *fault.Error) string {
	if err == error(e) {
		return e.Message
	}
	return err.Error()
}

// hintOf returns the next step of an error in words, and when to try again.
func hintOf(e *fault.Error) string {
	hint := e.Advice()
	if e.RetryAfter == 0 {
		return hint
	}
	again := fmt.Sprintf("try again in %s", max(e.RetryAfter.Round(time.Millisecond), time.Millisecond))
	if e.RetryAfter >= time.Minute {
		again = "try again at " + clock(time.Now().Add(e.RetryAfter))
	}
	if e.Kind == fault.DeviceLocked || e.Kind == fault.PINBlocked {
		again = "locked until " + clock(time.Now().Add(e.RetryAfter))
	}
	if hint == "" {
		return again
	}
	return hint + "; " + again
}
