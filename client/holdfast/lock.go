package main

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/agentwire"
)

func (a *app) lockCommand() *cobra.Command {
	cmd := &cobra.Command{
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
			if err := c.Lock(ctx, args[0]); err != nil {
				return err
			}
			return a.say(lockedKeys{[]string{args[0]}}, "%s is locked", args[0])
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}

// lockedKeys is the JSON form of `lock`: the keys that it locked, or that were unlocked
// before.
type lockedKeys struct {
	Locked []string `json:"locked"`
}

// lockAll locks the caller's keys and prints which were unlocked. It also locks them
// when the list cannot be read.
func (a *app) lockAll(ctx context.Context, c *client.Client) error {
	list, unknown := c.Keys(ctx, false)
	if err := c.Lock(ctx, ""); err != nil {
		return err
	}
	open := unlocked(list)
	switch {
	case unknown != nil:
		return a.say(lockedKeys{open}, "all of your keys are locked")
	case len(open) == 0:
		return a.say(lockedKeys{open}, "none of your keys was unlocked")
	}
	return a.say(lockedKeys{open}, "locked: %s", strings.Join(open, ", "))
}

// unlocked returns the names of this user's unlocked keys.
func unlocked(list []agentwire.Key) []string {
	names := []string{}
	for _, k := range list {
		if k.UnlockedUntil != nil && int64(k.Owner.UID) == int64(os.Getuid()) {
			names = append(names, k.Name)
		}
	}
	return names
}
