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
	"holdfast/internal/varlink"
)

// code gives each kind of error of the broker its exit code; all others fail.
func code(kind string) int {
	switch kind {
	case "Denied":
		return exitDenied
	case "PINRequired", "PINBlocked", "TouchTimeout", "ConfirmationRequired":
		return exitPerson
	case "AgentUnreachable":
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
		return &failure{exitUnreachable, unreachable.Reason, withoutSudo(unreachable.Hint)}
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return &failure{
			exitDenied, fmt.Sprintf("the broker does not talk to uid %d", os.Getuid()),
			withoutSudo("its policy names who may; or it was restarted at this moment, then try again"),
		}
	case errors.Is(err, varlink.ErrConnectionLost):
		return &failure{exitUnreachable, "the broker closed the connection before it answered", "its log says why"}
	}
	return err
}

// withoutSudo returns the hint for who runs kubectl with sudo(8), as a user whose
// broker this is not; else the other one.
func withoutSudo(hint string) string {
	if by := os.Getenv("SUDO_UID"); by != "" && by != strconv.Itoa(os.Getuid()) {
		return "run kubectl without sudo: the broker of uid " + by + " serves nobody else"
	}
	return hint
}

// fromBroker explains what the broker answered.
func fromBroker(e *varlink.Error) error {
	kind, ours := strings.CutPrefix(e.Name, brokerwire.Interface+".")
	var p struct {
		Message, Hint, Parameter string
	}
	_ = json.Unmarshal(e.Parameters, &p) // what is missing from the parameters is missing from the text
	if !ours || p.Message == "" {
		return &failure{exitFailed, fmt.Sprintf("the broker answered %.80q %.80q", e.Name, p.Parameter), "it may be of another age than this program: `holdfast status` shows its version"}
	}
	return &failure{code(kind), p.Message, p.Hint}
}
