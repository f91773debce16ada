package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/dial"
)

// A finding is the result of one check of doctor.
type finding struct {
	State   string `json:"state"` // ok, note or bad
	Subject string `json:"subject"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// The states of a finding. A note is worth knowing and stops nothing.
const (
	stateOK   = "ok"
	stateNote = "note"
	stateBad  = "bad"
)

// findings holds the results of doctor.
type findings []finding

func (f *findings) ok(subject, format string, args ...any) {
	*f = append(*f, finding{stateOK, subject, fmt.Sprintf(format, args...), ""})
}

func (f *findings) note(subject, message, hint string) {
	*f = append(*f, finding{stateNote, subject, message, hint})
}

func (f *findings) bad(subject, message, hint string) {
	*f = append(*f, finding{stateBad, subject, message, hint})
}

// failed adds an error as a finding.
func (f *findings) failed(subject string, err error) {
	p := explain(err)
	f.bad(subject, p.message, p.hint)
}

func (f findings) count(state string) int {
	n := 0
	for _, one := range f {
		if one.State == state {
			n++
		}
	}
	return n
}

func (a *app) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "find faults, and print what to do about them",
		Long: `Checks the agent, its socket, its devices and keys, the broker where there is one,
and what this machine has installed for them. For each fault it prints the next
step. It works without an agent. The exit code is 0 when nothing is wrong and 3
when no agent answers.`,
		Example: indent("holdfast doctor"),
		Args:    arguments(),
		RunE: a.action(func(ctx context.Context, _ []string) error {
			found, code := a.examine(ctx)
			if err := a.printFindings(found); err != nil || code == exitDone {
				return err
			}
			return &problem{message: plural(found.count(stateBad), "thing is", "things are") + " wrong", hint: "start with the first one above", code: code}
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}

// examine checks everything. Faults of the machine count as wrong where the agent does
// not work, and are notes where it does.
func (a *app) examine(ctx context.Context) (findings, int) {
	var found findings
	c, err := a.dialFor(ctx, a.timeouts.state)
	if err != nil {
		found.unreachable("agent", err)
		found.units(a.machine, named())
	} else {
		defer c.Close()
		err = found.agent(ctx, c, a.machine)
	}
	found.broker(ctx, a)
	if !named() {
		found.runtimeDirectory(a.machine)
	}
	found.tpm(a.machine, err == nil)
	found.swtpm()
	found.kernel()
	var unreachable *client.UnreachableError
	switch {
	case errors.As(err, &unreachable):
		return found, exitUnreachable
	case found.count(stateBad) > 0:
		return found, exitFailed
	}
	return found, exitDone
}

// named reports whether the environment names the socket, so that no other place counts.
func named() bool { return os.Getenv(dial.Agent().Variable) != "" }

// unreachable reports why a service does not answer. The advice to run doctor is for
// other commands.
func (f *findings) unreachable(service string, err error) {
	p := *explain(err)
	var unreachable *dial.UnreachableError
	if errors.As(err, &unreachable) {
		p.hint = cmp.Or(unreachable.Fix, p.hint)
	}
	f.bad(service, p.message, p.hint)
}

// agent checks the agent. It returns an error when the agent gives no status.
func (f *findings) agent(ctx context.Context, c *client.Client, m machine) error {
	s, err := c.Status(ctx)
	if err != nil {
		f.unreachable("agent", err)
		return err
	}
	f.ok("agent", "%s in %s mode answers at %s and takes you for %s", s.Version, s.Mode, c.Socket(), callerOf(s.Caller))
	for _, n := range s.Notices {
		if n.Problem {
			f.bad("agent", n.Message, n.Hint)
		} else {
			f.note("agent", n.Message, n.Hint)
		}
	}
	f.devices(s.Devices)
	f.policy(s.Policy)
	f.keys(ctx, c)
	f.cards(ctx, c, m, s)
	return nil
}

// policy checks the file for mistakes that the agent has not read yet.
func (f *findings) policy(source string) {
	if _, err := os.Stat(source); err != nil {
		f.ok("policy", "%s", source)
		return
	}
	if _, err := readPolicy(source); err != nil && !errors.Is(err, os.ErrPermission) {
		f.bad("policy", strings.ReplaceAll(explain(err).message, "\n", "; "), "correct the file, then reload the agent; it keeps using the version that it read before")
		return
	}
	f.ok("policy", "%s", source)
}

func (a *app) printFindings(found findings) error {
	var rows [][]string
	for _, one := range found {
		rows = append(rows, withHint([]string{one.State, one.Subject, one.Message}, one.Hint)...)
	}
	return a.show(found, func() error { return table(a.stdout, rows...) })
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
