package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/agentwire"
)

func (a *app) lockCommand() *cobra.Command {
	return &cobra.Command{
		Use: "lock [NAME]", Short: "lock one key, or all of yours, before the time is over",
		Long: `Locks one key, or all of yours: the agent forgets their PINs, and the next signature
needs the PIN again. The agent locks keys by itself when their time is over, when
the screen is locked and when the machine goes to sleep.`,
		Example: indent("holdfast lock"),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return oneKey()(cmd, args)
		},
		ValidArgsFunction: a.completeKeys,
		RunE: a.asking(func(ctx context.Context, c *client.Client, args []string) error {
			if len(args) == 0 {
				return a.lockAll(ctx, c)
			}
			err := c.Lock(ctx, args[0])
			if err == nil {
				fmt.Fprintf(a.stdout, "%s is locked\n", args[0])
			}
			return err
		}),
	}
}

// lockAll locks the caller's keys and prints which were unlocked. It also locks them
// when the list cannot be read.
func (a *app) lockAll(ctx context.Context, c *client.Client) error {
	list, unknown := c.Keys(ctx, false)
	if err := c.Lock(ctx, ""); err != nil {
		return err
	}
	switch open := unlocked(list); {
	case unknown != nil:
		fmt.Fprintln(a.stdout, "all of your keys are locked")
	case len(open) == 0:
		fmt.Fprintln(a.stdout, "none of your keys was unlocked")
	default:
		fmt.Fprintf(a.stdout, "locked: %s\n", strings.Join(open, ", "))
	}
	return nil
}

// unlocked returns the names of this user's unlocked keys.
func unlocked(list []agentwire.Key) []string {
	var names []string
	for _, k := range list {
		if k.UnlockedUntil != nil && int64(k.Owner.UID) == int64(os.Getuid()) {
			names = append(names, k.Name)
		}
	}
	return names
}
