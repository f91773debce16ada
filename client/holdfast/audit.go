package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/agentwire"
)

func (a *app) auditCommands() *cobra.Command {
	return a.group("audit", "read and check the agent's log of decisions", "holdfast audit tail -n 5", a.auditTail(), a.auditVerify())
}

func (a *app) auditTail() *cobra.Command {
	var n int
	var file string
	cmd := &cobra.Command{
		Use: "tail", Short: "show the newest decisions, oldest first",
		Long: `Shows the newest decisions of the agent: yours, or those of all users for root and
for the agent's own user. --json prints the records as they are in the log, one on
each line.`,
		Example: indent("holdfast audit tail -n 5"),
		Args:    arguments(),
		PreRunE: func(*cobra.Command, []string) error {
			if n < 1 {
				return usagef("", "-n needs a number above 0")
			}
			return nil
		},
		RunE: a.action(func(ctx context.Context, _ []string) error {
			records, err := a.newest(ctx, file, n)
			if err != nil {
				return err
			}
			if a.asJSON {
				for _, r := range records {
					fmt.Fprintln(a.stdout, r)
				}
				return nil
			}
			return a.printRecords(records)
		}),
	}
	cmd.Flags().IntVarP(&n, "lines", "n", 20, "how many records: `N`")
	cmd.Flags().StringVar(&file, "file", "", "read this `FILE` instead of asking the agent")
	a.jsonFlag(cmd)
	return cmd
}

// newest returns the n newest records, from the agent or from a file.
func (a *app) newest(ctx context.Context, file string, n int) ([]string, error) {
	if file != "" {
		return tailFile(file, n)
	}
	return fromAgent(ctx, a, answerTime, func(c *client.Client) ([]string, error) { return c.TailAudit(ctx, n) })
}

// record holds the members of an audit record that are shown. Records may have more.
type record struct {
	Time   time.Time `json:"time"`
	Seq    uint64    `json:"seq"`
	Kind   string    `json:"kind"`
	Caller *struct {
		agentwire.Caller
		Reported *agentwire.Reported `json:"reported"`
	} `json:"caller"`
	Operation string            `json:"operation"`
	Key       string            `json:"key"`
	Decision  string            `json:"decision"`
	Rule      string            `json:"rule"`
	Outcome   string            `json:"outcome"`
	Detail    map[string]string `json:"detail"`
	Prev      string            `json:"prev"`
}

func (a *app) printRecords(lines []string) error {
	rows := [][]string{{"TIME", "NUMBER", "WHAT", "OPERATION", "KEY", "WHO", "RULE", "DETAIL"}}
	for _, line := range lines {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return fmt.Errorf("audit record %.40q: %w", line, err)
		}
		rows = append(rows, r.row())
	}
	return table(a.stdout, rows...)
}

func (r *record) row() []string {
	what := r.Kind
	switch {
	case r.Decision != "":
		what = strings.TrimSuffix(r.Decision+" "+r.Outcome, " ")
	case r.Outcome != "":
		what = r.Outcome
	}
	return []string{when(r.Time), fmt.Sprint(r.Seq), what, dash(r.Operation), dash(r.Key), dash(r.who()), dash(r.Rule), details(r.Detail)}
}

// who describes the caller, or the user that the caller reports to act for, marked as
// reported by the caller.
func (r *record) who() string {
	c := r.Caller
	if c == nil {
		return ""
	}
	who := callerOf(c.Caller)
	if c.Reported == nil {
		return who
	}
	return callerOf(agentwire.Caller{UID: c.Reported.UID, PID: c.Reported.PID, Unit: c.Reported.Unit}) + " reported by " + who
}

// dash keeps a column visible where there is nothing to show.
func dash(s string) string { return cmp.Or(s, "-") }

func details(m map[string]string) string {
	text, err := json.Marshal(m) // in the order of the names
	if err != nil || len(m) == 0 {
		return ""
	}
	return strings.Trim(string(text), "{}")
}

func (a *app) auditVerify() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "verify", Short: "check that the log is as the agent wrote it",
		Long: `Walks the log's chain of hashes and compares its end with the anchor, the file
beside it whose name ends in .anchor. Keep a copy of the head elsewhere: only a copy
shows that both files were replaced.`,
		Example: indent("holdfast audit verify"),
		Args:    arguments(),
		RunE: a.action(func(ctx context.Context, _ []string) error {
			reply, err := a.verifyAudit(ctx, file)
			if err != nil {
				return err
			}
			return a.show(reply, func() error {
				_, err := fmt.Fprintf(a.stdout, "%d records, unbroken; head %s\n", reply.Records, reply.Head)
				return err
			})
		}),
	}
	cmd.Flags().StringVar(&file, "file", "", "check this `FILE`, which no agent has open, without an agent")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) verifyAudit(ctx context.Context, file string) (agentwire.VerifyAuditReply, error) {
	if file != "" {
		return verifyFile(file)
	}
	return fromAgent(ctx, a, answerTime, func(c *client.Client) (agentwire.VerifyAuditReply, error) { return c.VerifyAudit(ctx) })
}
