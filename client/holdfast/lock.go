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
		Use: "lock [NAME]", Short: "take back what unlock gave, for one key or for all of yours",
		Long: `Locks one key, or all of yours: what the agent keeps of their PINs is forgotten,
and the next signature wants the PIN again. The agent does so by itself when the
time is over, when the screen is locked and when the machine goes to sleep.`,
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

// lockAll locks the caller's keys, and says which were open. It locks them also
// where that cannot be told.
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

// unlocked names this user's keys that are unlocked.
func unlocked(list []agentwire.Key) []string {
	var names []string
	for _, k := range list {
		if k.UnlockedUntil != nil && int64(k.Owner.UID) == int64(os.Getuid()) {
			names = append(names, k.Name)
		}
	}
	return names
}
