package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"holdfast/internal/brokerwire"
	"holdfast/internal/dial"
	"holdfast/internal/fault"
	"holdfast/internal/varlink"
)

// code returns the exit code for a kind of error.
func code(kind fault.Kind) int {
	switch kind {
	case fault.Denied:
		return exitDenied
	case fault.PINRequired, fault.PINBlocked, fault.TouchTimeout, fault.ConfirmationRequired:
		return exitPerson
	case brokerwire.AgentUnreachable:
		return exitUnreachable
	}
	return exitFailed
}

// explain turns the error of a call into a fact, a hint and an exit code.
func explain(err error) error {
	var answer *varlink.Error
	var unreachable *dial.UnreachableError
	switch {
	case errors.As(err, &answer):
		return fromBroker(answer)
	case errors.As(err, &unreachable):
		f := &failure{exitUnreachable, unreachable.Reason, withoutSudo(unreachable.Hint)}
		if silent := errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED); silent && !underSudo() {
			return notRunning{f}
		}
		return f
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return &failure{
			exitDenied, fmt.Sprintf("the broker rejects uid %d", os.Getuid()),
			withoutSudo("the broker's policy names the users that it serves; if the broker was restarted just now, try again"),
		}
	case errors.Is(err, varlink.ErrConnectionLost):
		return &failure{exitUnreachable, "the broker closed the connection before it answered", "its log says why"}
	}
	return err
}

// withoutSudo returns a hint about sudo(8) when kubectl runs through it, as a user
// that the broker does not serve, and the given hint otherwise.
func withoutSudo(hint string) string {
	if underSudo() {
		return "run kubectl without sudo: the broker of uid " + os.Getenv("SUDO_UID") + " serves only that user"
	}
	return hint
}

// underSudo reports whether another user runs kubectl through sudo(8).
func underSudo() bool {
	by := os.Getenv("SUDO_UID")
	return by != "" && by != strconv.Itoa(os.Getuid())
}

// fromBroker explains the broker's error. One of a kind that a later broker has
// added is shown too.
func fromBroker(e *varlink.Error) error {
	var p struct {
		fault.Parameters
		Parameter string // of an error of varlink's own
	}
	_ = json.Unmarshal(e.Parameters, &p) // a missing member is missing from the text
	if p.Message == "" || !strings.HasPrefix(e.Name, brokerwire.Interface+".") {
		return &failure{
			exitFailed, fmt.Sprintf("the broker answered %.80q %.80q", e.Name, p.Parameter),
			"the broker may be a different version from this program: `holdfast status` shows its version",
		}
	}
	kind, _ := brokerwire.Errors().KindOf(e.Name)
	return &failure{code(kind), p.Message, p.Hint}
}
