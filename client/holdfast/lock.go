package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/agent/keys"
	"holdfast/agent/wire"
	"holdfast/client"
)

// unlockOptions is what `unlock` was given.
type unlockOptions struct {
	source   secretSource
	seconds  int
	pinentry bool
}

func (a *app) unlockCommand() *cobra.Command {
	var o unlockOptions
	cmd := &cobra.Command{
		Use: "unlock NAME", Short: "give the device the PIN of a key, for a while",
		Long: `Asks for the PIN on the terminal and proves it to the device. The key then signs
without it for 15 minutes, or as long as --seconds says, at most an hour; other
keys on the same card stay locked. A wrong PIN costs one of the device's few tries.

Without a terminal, or with --pinentry, the agent asks, by the pinentry of this
session's desktop or terminal.`,
		Example: indent("holdfast unlock alice"),
		Args:    oneKey(), ValidArgsFunction: a.completeKeys,
		PreRunE: func(*cobra.Command, []string) error {
			if o.pinentry && o.source.given() {
				return usagef("give one of them", "--pinentry and --pin-fd exclude each other")
			}
			return nil
		},
		RunE: a.asking(func(ctx context.Context, c *client.Client, args []string) error {
			pin, err := a.pinFor(ctx, c, &o, args[0])
			if err != nil {
				return err
			}
			defer clear(pin)
			reply, err := c.Unlock(ctx, wire.UnlockKeyParameters{Name: args[0], PIN: pin, Seconds: o.seconds})
			if err != nil {
				return notAsked(pin, err)
			}
			fmt.Fprintf(a.stdout, "%s is unlocked until %s\n", args[0], when(reply.UnlockedUntil))
			return nil
		}),
	}
	cmd.Flags().IntVar(&o.seconds, "seconds", 0, "for how many `SECONDS`, at most 3600 (default 900)")
	cmd.Flags().BoolVar(&o.pinentry, "pinentry", false, "let the agent ask for the PIN, although there is a terminal")
	o.source.flag(cmd, "pin-fd", "PIN")
	return cmd
}

// pinFor returns the PIN that unlocks a key, or nothing where the agent is to ask.
func (a *app) pinFor(ctx context.Context, c *client.Client, o *unlockOptions, name string) ([]byte, error) {
	if !o.source.given() {
		tty, err := a.terminal()
		if err != nil || o.pinentry {
			return nil, nil
		}
		tty.Close()
	}
	prompt := "PIN for key " + name + ": "
	if k, err := c.GetKey(ctx, name); err == nil && k.Place != nil { // else Unlock has the error
		prompt = promptFor(k)
	}
	pin, err := o.source.read(ctx, a, prompt, "")
	if err != nil {
		return nil, err
	}
	return pin, keys.CheckPIN(pin)
}

// notAsked gives the error of an agent that could not ask another hint than to do
// what was just done.
func notAsked(pin []byte, err error) error {
	e, fromAgent := keys.AsError(err)
	if len(pin) > 0 || !fromAgent || !strings.Contains(e.Hint, "holdfast unlock") {
		return err
	}
	p := *explain(err)
	p.hint = "run it in a terminal and without --pinentry, or hand the PIN over with --pin-fd 3 3<FILE"
	return &p
}

// promptFor asks for the PIN of a key on a card.
func promptFor(k wire.Key) string {
	return fmt.Sprintf("PIN of card %d, for key %s: ", k.Place.Card, k.Name)
}

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
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			return c.Lock(ctx, name)
		}),
	}
}
