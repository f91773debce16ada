package main

import (
	"context"

	"github.com/spf13/cobra"

	"holdfast/agent/wire"
	"holdfast/client"
)

// installOptions is what `certificate install` was given.
type installOptions struct {
	recordOnly, json bool
	source           secretSource
}

func (a *app) certificateInstall() *cobra.Command {
	o := installOptions{source: secretSource{instead: "leave the slot as it is: --record-only"}}
	cmd := &cobra.Command{
		Use: "install NAME FILE", Short: "give a key its certificate chain",
		Long: `Stores a certificate chain (PEM), leaf first, with a key. The leaf must be for
this key. FILE may be - for stdin.

For a key on a card the leaf is stored in the key's slot too, where other programs
look for it; the card's PIN is asked for. --record-only leaves the slot as it is.`,
		Example: indent("holdfast certificate install alice alice.pem"),
		Args:    oneKey("FILE"), ValidArgsFunction: a.completeKeys,
		RunE: a.asking(func(ctx context.Context, c *client.Client, args []string) error {
			chain, err := a.readCertificates(args[1])
			if err != nil {
				return err
			}
			k, err := a.install(ctx, c, &o, args[0], chain)
			if err != nil {
				return err
			}
			return a.showKey(ctx, c, k, o.json)
		}),
	}
	cmd.Flags().BoolVar(&o.recordOnly, "record-only", false, "leave a card's slot as it is")
	o.source.flag(cmd, "pin-fd", "card's PIN")
	jsonFlag(cmd, &o.json)
	return cmd
}

// install stores a chain in a key's record, and the leaf in its slot.
func (a *app) install(ctx context.Context, c *client.Client, o *installOptions, name string, chain [][]byte) (wire.Key, error) {
	before, err := c.GetKey(ctx, name)
	if err != nil || before.Place == nil || o.recordOnly {
		return a.installRecord(ctx, c, before, name, chain)
	}
	pin, err := o.source.read(ctx, a, promptFor(before), "")
	if err != nil {
		return wire.Key{}, err
	}
	defer clear(pin)
	k, err := c.InstallOnCard(ctx, name, chain, pin)
	if err == nil {
		a.note("the chain is in the record, and the leaf in slot %s of card %d", before.Place.Slot, before.Place.Card)
	}
	return k, err
}

// installRecord stores a chain in a key's record alone.
func (a *app) installRecord(ctx context.Context, c *client.Client, before wire.Key, name string, chain [][]byte) (wire.Key, error) {
	k, err := c.InstallCertificate(ctx, name, chain)
	if err == nil && before.Place != nil {
		a.note("the chain is in the record alone; slot %s of card %d is as it was", before.Place.Slot, before.Place.Card)
	}
	return k, err
}
