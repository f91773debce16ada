package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/fault"
)

// The exit codes. Scripts rely on them.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3 // there is no agent to ask
	exitDenied      = 4 // policy says no
	exitPerson      = 5 // a person is needed: PIN, touch, confirmation
)

// A problem is an error of the tool itself: one fact, one hint and its exit code.
type problem struct {
	message, hint string
	code          int
	err           error // the cause, already part of message; may be nil
}

func (p *problem) Error() string { return p.message }
func (p *problem) Unwrap() error { return p.err }

// answered is how a command ends whose answer, on stdout already, is no.
type answered struct{ code int }

func (answered) Error() string { return "the answer is no" }

// usage says that a command line was not understood.
func usage(cmd *cobra.Command, err error) error {
	var p *problem
	if errors.As(err, &p) {
		return err
	}
	return &problem{err.Error(), cmd.CommandPath() + " --help shows how it is used", exitUsage, err}
}

// usageError is for arguments that only the command itself can judge.
func usageError(err error) error {
	hint := ""
	if e, ok := fault.AsError(err); ok {
		hint = e.Hint
	}
	return &problem{err.Error(), hint, exitUsage, err}
}

func usagef(hint, format string, args ...any) error {
	return &problem{fmt.Sprintf(format, args...), hint, exitUsage, nil}
}

// report tells the person about err and returns its exit code.
func (a *app) report(err error) int {
	var no answered
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &no):
		return no.code
	}
	p := explain(err)
	a.tell("error", p.message)
	if p.hint != "" {
		a.tell("hint", p.hint)
	}
	return p.code
}

// tell writes text to stderr and says on each of its lines what it is: a file
// with several mistakes has one on each, and no line passes for another's.
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
		return &problem{err.Error(), unreachable.Hint, exitUnreachable, err}
	case fromAgent:
		return &problem{factOf(err, e), hintOf(e), codeOf(e.Kind), err}
	case errors.Is(err, context.Canceled):
		return &problem{"interrupted", "", exitFailed, err}
	}
	return &problem{err.Error(), "", exitFailed, err}
}

// aboutKey names the key in the hint of an error that the agent gave: its own
// hints say NAME, and a line that can be copied is worth more.
func aboutKey(name string, err error) error {
	if _, fromAgent := fault.AsError(err); !fromAgent {
		return err
	}
	p := *explain(err)
	p.hint, p.err = strings.ReplaceAll(p.hint, "holdfast unlock NAME", "holdfast unlock "+name), err
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

func hintOf(e *fault.Error) string {
	if e.RetryAfter == 0 {
		return e.Hint
	}
	again := fmt.Sprintf("try again in %s", max(e.RetryAfter.Round(time.Millisecond), time.Millisecond))
	if e.Hint == "" {
		return again
	}
	return e.Hint + "; " + again
}
