package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
)

// unlockOptions holds the options of `unlock`.
type unlockOptions struct {
	source   secretSource
	seconds  int
	pinentry bool
}

func (a *app) unlockCommand() *cobra.Command {
	var o unlockOptions
	cmd := &cobra.Command{
		Use: "unlock NAME", Short: "enter the PIN of a key, so that it signs for a while",
		Long: `Asks for the PIN on the terminal and proves it to the device. The key then signs
without it for 15 minutes, or as long as --seconds says, at most an hour; other
keys on the same card stay locked. A wrong PIN costs one of the device's few tries;
a card's last one is never spent. After a wrong PIN the command asks again while
there are tries.

Without a terminal, or with --pinentry, the agent asks with the pinentry of this
session's desktop or terminal.`,
		Example: indent("holdfast unlock alice"),
		Args:    oneKey(), ValidArgsFunction: a.completeKeys,
		PreRunE: exclusive("pinentry", "pin-fd"),
		RunE:    a.asking(func(ctx context.Context, c *client.Client, args []string) error { return a.unlock(ctx, c, &o, args[0]) }),
	}
	cmd.Flags().IntVar(&o.seconds, "seconds", 0, "for how many `SECONDS`, at most 3600 (default 900)")
	cmd.Flags().BoolVar(&o.pinentry, "pinentry", false, "let the agent ask for the PIN, although there is a terminal")
	o.source.flag(cmd, "pin-fd", "PIN")
	a.jsonFlag(cmd)
	return cmd
}

// unlockedKey is the JSON form of `unlock`.
type unlockedKey struct {
	Name          string    `json:"name"`
	UnlockedUntil time.Time `json:"unlockedUntil"`
}

// unlock gets the PIN of a key from the user, or lets the agent do so.
func (a *app) unlock(ctx context.Context, c *client.Client, o *unlockOptions, name string) error {
	unlock := func(pin []byte) error {
		reply, err := c.Unlock(ctx, agentwire.UnlockKeyParameters{Name: name, PIN: pin, Seconds: o.seconds})
		if err != nil {
			return err
		}
		return a.say(unlockedKey{name, reply.UnlockedUntil}, "%s is unlocked until %s", name, when(reply.UnlockedUntil))
	}
	k, err := c.GetKey(ctx, name)
	switch {
	case err != nil:
		return err
	case !k.PIN || !o.source.given() && (o.pinentry || !a.hasTerminal()):
		return o.notAsked(unlock(nil))
	}
	return a.withPIN(ctx, c, &o.source, k, unlock)
}

// notAsked returns the error of an agent that could not ask for the PIN. Its next
// step, to run this command, is replaced by what makes this command work.
func (o *unlockOptions) notAsked(err error) error {
	e, fromAgent := fault.AsError(err)
	if !fromAgent || e.Next.Do != fault.Unlock {
		return err
	}
	p := *explain(err)
	p.hint = "run it in a terminal, or hand the PIN over with --pin-fd 3 3<FILE"
	if o.pinentry {
		p.hint = "run it in a terminal and without --pinentry, or hand the PIN over with --pin-fd 3 3<FILE"
	}
	return &p
}
