package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"slices"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
)

// installOptions holds the options of `certificate install`.
type installOptions struct {
	recordOnly bool
	source     secretSource
	management secretSource
}

func (a *app) certificateInstall() *cobra.Command {
	o := installOptions{source: secretSource{instead: "leave the slot as it is: --record-only"}}
	cmd := &cobra.Command{
		Use: "install NAME FILE", Short: "give a key its certificate chain",
		Long: `Stores a certificate chain (PEM), leaf first, with a key. The leaf must be for
this key. FILE may be - for stdin.

For a key on a card the leaf is stored in the key's slot too, where other programs
look for it; unless the key is unlocked, that needs the card's PIN, or its management
key where the card does not keep it. With
--record-only no PIN is asked for, and the slot of a locked key stays as it is.`,
		Example: indent("holdfast certificate install alice alice.pem"),
		Args:    oneKey("FILE"), ValidArgsFunction: a.completeKeys,
		RunE: a.asking(func(ctx context.Context, c *client.Client, args []string) error {
			chain, err := a.readCertificates(args[1])
			if err != nil {
				return err
			}
			k, err := a.install(ctx, c, &o, args[0], chain)
			if err != nil {
				return fittingKey(ctx, c, args[0], chain, err)
			}
			return a.showKey(ctx, c, k)
		}),
	}
	cmd.Flags().BoolVar(&o.recordOnly, "record-only", false, "do not ask for a card's PIN, and leave its slot as it is")
	o.source.flag(cmd, "pin-fd", "card's PIN")
	o.management.flag(cmd, "management-key-fd", "card's management key, in hex, where the card does not keep it,")
	a.jsonFlag(cmd)
	return cmd
}

// fittingKey adds to the error about a certificate for another key which of the caller's
// keys the certificate is for.
func fittingKey(ctx context.Context, c *client.Client, name string, chain [][]byte, err error) error {
	list, listErr := c.Keys(ctx, false)
	leaf, parseErr := x509.ParseCertificate(chain[0])
	if _, answered := fault.AsError(err); !answered || listErr != nil || parseErr != nil {
		return err
	}
	p := *explain(err)
	p.err = err
	fits := func(k agentwire.Key) bool { return bytes.Equal(k.PublicKey, leaf.RawSubjectPublicKeyInfo) }
	switch i := slices.IndexFunc(list, fits); {
	case i < 0 && !leaf.IsCA:
		p.hint = "the certificate fits none of your keys: holdfast certificate request " + name + " asks for one that fits"
	case i >= 0 && list[i].Name != name:
		p.hint = "the certificate fits your key " + list[i].Name
	default:
		return err // it is about something else, such as the order
	}
	return &p
}

// install stores a chain in a key's record, and the leaf in its slot. The agent does
// the latter by itself for a key that is unlocked, as far as it can.
func (a *app) install(ctx context.Context, c *client.Client, o *installOptions, name string, chain [][]byte) (agentwire.Key, error) {
	before, err := c.GetKey(ctx, name)
	if err != nil || before.Place == nil {
		return c.InstallCertificate(ctx, name, chain)
	}
	if o.recordOnly || before.UnlockedUntil != nil && !o.source.given() && !o.management.given() {
		k, err := c.InstallCertificate(ctx, name, chain)
		if err == nil {
			a.tellSlot(before.Place, inSlot(ctx, c, before.Place, chain[0]))
		}
		return k, err
	}
	if o.management.given() {
		return a.installManaging(ctx, c, o, before, chain)
	}
	var k agentwire.Key
	err = a.withPIN(ctx, c, &o.source, before, func(pin []byte) (err error) {
		k, err = c.InstallOnCard(ctx, name, chain, pin, nil)
		return err
	})
	if err == nil {
		a.tellSlot(before.Place, true)
	}
	return k, err
}

// installManaging is install with the card's management key, without a PIN.
func (a *app) installManaging(ctx context.Context, c *client.Client, o *installOptions, k agentwire.Key, chain [][]byte) (agentwire.Key, error) {
	management, err := o.management.readManagementKey(ctx, a, "")
	if err != nil {
		return k, err
	}
	defer clear(management)
	installed, err := c.InstallOnCard(ctx, k.Name, chain, nil, management)
	if err == nil {
		a.tellSlot(k.Place, true)
	}
	return installed, err
}

func (a *app) tellSlot(p *agentwire.Place, stored bool) {
	if stored {
		a.note("the chain is in the record, and the leaf in slot %s of card %d", p.Slot, p.Card)
		return
	}
	a.note("the chain is in the record alone, and not in slot %s of card %d", p.Slot, p.Card)
}

// inSlot reports whether a slot is known to hold a certificate.
func inSlot(ctx context.Context, c *client.Client, p *agentwire.Place, leaf []byte) bool {
	cards, _ := c.ListCards(ctx) // of a card that cannot be seen nothing is known
	for _, card := range cards {
		for _, s := range card.Slots {
			if card.Serial == p.Card && s.Slot == p.Slot && bytes.Equal(s.Certificate, leaf) {
				return true
			}
		}
	}
	return false
}
