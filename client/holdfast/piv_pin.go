package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
)

// changeOptions holds the options of the commands that change a card's PIN or PUK.
type changeOptions struct {
	card     uint32
	generate bool // the new PUK
	old, new secretSource
}

func (a *app) pivChangePIN() *cobra.Command {
	var o changeOptions
	cmd := &cobra.Command{
		Use: "change-pin", Short: "change a card's PIN",
		Long: `Changes the PIN of a card, which all keys on it share. A wrong old PIN costs one of
the card's few tries; the last one is never spent.`,
		Example: indent("holdfast piv change-pin"),
		Args:    arguments(),
		RunE: a.asking(func(ctx context.Context, c *client.Client, _ []string) error {
			return a.changeCard(ctx, c, &o, "PIN", func(card agentwire.Card) *int { return card.PINTries }, c.ChangeCardPIN)
		}),
	}
	a.cardFlag(cmd, &o.card)
	o.old.flag(cmd, "old-pin-fd", "old PIN")
	o.new.flag(cmd, "pin-fd", "new PIN")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) pivChangePUK() *cobra.Command {
	var o changeOptions
	cmd := &cobra.Command{
		Use: "change-puk", Short: "change a card's PUK",
		Long: `Changes the PUK of a card. The PUK sets a new PIN when the PIN is blocked or lost. A
wrong old PUK costs one of the card's few tries; the last one is never spent.`,
		Example: indent("holdfast piv change-puk --generate-puk"),
		Args:    arguments(),
		PreRunE: exclusive("generate-puk", "puk-fd"),
		RunE: a.asking(func(ctx context.Context, c *client.Client, _ []string) error {
			return a.changeCard(ctx, c, &o, "PUK", func(card agentwire.Card) *int { return card.PUKTries }, c.ChangeCardPUK)
		}),
	}
	a.cardFlag(cmd, &o.card)
	cmd.Flags().BoolVar(&o.generate, "generate-puk", false, "make a random PUK and print it, once")
	o.old.flag(cmd, "old-puk-fd", "old PUK")
	o.new.flag(cmd, "puk-fd", "new PUK")
	a.jsonFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("generate-puk", "json") // the PUK is printed by itself
	return cmd
}

// changeCard asks for the old and the new PIN or PUK, as what says, and has the agent
// change it.
func (a *app) changeCard(ctx context.Context, c *client.Client, o *changeOptions, what string, tries func(agentwire.Card) *int, change func(context.Context, agentwire.ChangeCardParameters) error) error {
	card, err := a.card(ctx, c, o.card)
	if err != nil {
		return err
	}
	p := agentwire.ChangeCardParameters{Card: card.Serial}
	defer func() { clear(p.Old); clear(p.New) }()
	if p.Old, err = a.present(ctx, &o.old, card, what, tries(card)); err != nil {
		return err
	}
	if what == "PUK" {
		p.New, err = a.newPUK(ctx, &o.new, o.generate, card.Serial)
	} else {
		p.New, err = o.new.readNew(ctx, a)
	}
	if err != nil {
		return err
	}
	if err := change(ctx, p); err != nil {
		return wrongSecret(err, what)
	}
	return a.say(changedCard{card.Serial, []string{what}}, "card %d has a new %s", card.Serial, what)
}

// changedCard is the JSON form of the commands that change a card.
type changedCard struct {
	Card    uint32   `json:"card"`
	Changed []string `json:"changed"`
}

// present reads the present PIN or PUK of a card. It does not ask for one that has no
// try left that may be spent.
func (a *app) present(ctx context.Context, source *secretSource, card agentwire.Card, what string, tries *int) ([]byte, error) {
	if tries != nil && *tries < 2 {
		return nil, spent(card, what, *tries)
	}
	secret, err := source.read(ctx, a, fmt.Sprintf("The %s of card %d%s: ", source.name, card.Serial, triesLeft(tries)), "")
	if err != nil {
		return nil, err
	}
	return secret, checkCode(source.name, secret)
}

// spent returns the error for a PIN or PUK with no try left, or only the last one.
func spent(card agentwire.Card, what string, tries int) error {
	message := fmt.Sprintf("the %s of card %d is blocked", what, card.Serial)
	if tries > 0 {
		message = fmt.Sprintf("card %d has one try of its %s left, and holdfast never uses the last one", card.Serial, what)
	}
	hint := "holdfast piv unblock sets a new PIN, with the PUK"
	if what == "PUK" {
		hint = "ykman piv reset resets the card to its factory state; every key on it is lost"
	}
	if what == "PUK" && tries > 0 {
		hint = "if you are sure of it, ykman piv access change-puk takes it"
	}
	return personf(hint, "%s", message)
}

// wrongSecret adds the next step when a card rejected its PIN or PUK.
func wrongSecret(err error, what string) error {
	e, fromAgent := fault.AsError(err)
	if !fromAgent || e.Kind != fault.PINRequired || e.Advice() != "" {
		return err
	}
	p := *explain(err)
	p.hint = "try again; holdfast piv unblock sets a new PIN, with the PUK"
	if what == "PUK" {
		p.hint = "try again; holdfast piv list shows how many tries are left"
	}
	return &p
}

func (a *app) pivUnblock() *cobra.Command {
	var o changeOptions
	cmd := &cobra.Command{
		Use: "unblock", Short: "set a new PIN with the PUK, when the PIN is blocked or lost",
		Long: `Gives a card a new PIN. It needs the PUK: a wrong PUK costs one of the card's few
tries; the last one is never spent.`,
		Example: indent("holdfast piv unblock"),
		Args:    arguments(),
		RunE:    a.asking(func(ctx context.Context, c *client.Client, _ []string) error { return a.unblock(ctx, c, &o) }),
	}
	a.cardFlag(cmd, &o.card)
	o.old.flag(cmd, "puk-fd", "PUK")
	o.new.flag(cmd, "pin-fd", "new PIN")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) unblock(ctx context.Context, c *client.Client, o *changeOptions) error {
	card, err := a.card(ctx, c, o.card)
	if err != nil {
		return err
	}
	p := agentwire.UnblockCardParameters{Card: card.Serial}
	defer func() { clear(p.PUK); clear(p.PIN) }()
	if p.PUK, err = a.present(ctx, &o.old, card, "PUK", card.PUKTries); err != nil {
		return err
	}
	if p.PIN, err = o.new.readNew(ctx, a); err != nil {
		return err
	}
	if err := checkDifferent(p.PIN, p.PUK); err != nil {
		return err
	}
	if err := c.UnblockCard(ctx, p); err != nil {
		return wrongSecret(err, "PUK")
	}
	return a.say(changedCard{card.Serial, []string{"PIN"}}, "card %d has a new PIN", card.Serial)
}
