package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/agent/wire"
	"holdfast/client"
)

func (a *app) unlockCommand() *cobra.Command {
	var source pinSource
	var seconds int
	cmd := &cobra.Command{
		Use: "unlock NAME", Short: "give the device the PIN of a key, for a while",
		Long: `Asks for the PIN on the terminal and proves it to the device. The key then signs
without it for 15 minutes, or as long as --seconds says, at most an hour. A wrong
PIN costs one of the device's few tries.`,
		Example: indent("holdfast unlock alice"),
		Args:    oneKey(), ValidArgsFunction: a.completeKeys,
		RunE: a.asking(func(ctx context.Context, c *client.Client, args []string) error {
			pin, err := source.read(ctx, a, "PIN for key "+args[0]+": ", "")
			if err != nil {
				return err
			}
			defer clear(pin)
			reply, err := c.Unlock(ctx, wire.UnlockKeyParameters{Name: args[0], PIN: pin, Seconds: seconds})
			if err != nil {
				return err
			}
			fmt.Fprintf(a.stdout, "%s is unlocked until %s\n", args[0], when(reply.UnlockedUntil))
			return nil
		}),
	}
	cmd.Flags().IntVar(&seconds, "seconds", 0, "for how many `SECONDS`, at most 3600 (default 900)")
	source.flag(cmd)
	return cmd
}

func (a *app) lockCommand() *cobra.Command {
	return &cobra.Command{
		Use: "lock [NAME]", Short: "take back what unlock gave, for one key or for all of yours",
		Example: indent("holdfast lock"),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return oneKey()(cmd, args)
		},
		ValidArgsFunction: a.completeKeys,
		RunE: a.asking(func(ctx context.Context, c *client.Client, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			return c.Lock(ctx, name)
		}),
	}
}
