package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

func (a *app) pivCommands() *cobra.Command {
	return a.group("piv", "look at security keys (PIV cards), and set their PINs", "holdfast piv list",
		a.pivList(), a.pivSetUp(), a.pivChangePIN(), a.pivChangePUK(), a.pivUnblock())
}

func (a *app) pivList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "show the readers, the cards in them and their slots",
		Long: `Shows each reader and its card: firmware, how many tries of PIN and PUK are left,
which codes are still the factory's, and for each slot in use the key, its policies,
whether the card made it, and its certificate.`,
		Example: indent("holdfast piv list"),
		Args:    arguments(),
		RunE: a.asking(func(ctx context.Context, c *client.Client, _ []string) error {
			cards, err := c.ListCards(ctx)
			if err != nil {
				return a.machine.aboutPCSCD(err)
			}
			return a.show(cards, func() error { return a.printCards(cards) })
		}),
	}
	a.jsonFlag(cmd)
	return cmd
}

// cardFlag adds the option that names a card.
func (a *app) cardFlag(cmd *cobra.Command, serial *uint32) {
	cmd.Flags().Uint32Var(serial, "card", 0, "the serial `NUMBER` of the card (default the only one)")
	noDefault(cmd, "card")
	completeOption(cmd, "card", a.completeCards)
}

// completeCards completes the serial numbers of cards in the shell.
func (a *app) completeCards(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, err := client.Dial(cmd.Context(), &client.Options{Socket: a.socket, Timeout: 2 * time.Second})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	cards, _ := c.ListCards(cmd.Context()) // an error cannot be shown during completion
	var serials []string
	for _, card := range cards {
		if card.Serial != 0 {
			serials = append(serials, fmt.Sprintf("%d\t%s", card.Serial, oneLine(card.Reader)))
		}
	}
	return serials, cobra.ShellCompDirectiveNoFileComp
}

// card asks the agent for the card with a serial number, or for the only one, which
// must be ready.
func (a *app) card(ctx context.Context, c *client.Client, serial uint32) (agentwire.Card, error) {
	cards, err := c.ListCards(ctx)
	if err != nil {
		return agentwire.Card{}, a.machine.aboutPCSCD(err)
	}
	return pickCard(cards, serial)
}

func pickCard(cards []agentwire.Card, serial uint32) (agentwire.Card, error) {
	var known, wanted []agentwire.Card
	var serials []string
	for _, card := range cards {
		if card.Serial == 0 {
			continue
		}
		known, serials = append(known, card), append(serials, fmt.Sprint(card.Serial))
		if serial == 0 || card.Serial == serial {
			wanted = append(wanted, card)
		}
	}
	switch {
	case len(wanted) == 1:
		return wanted[0], notReady(wanted[0])
	case len(wanted) > 1:
		return agentwire.Card{}, usagef("--card says which", "there are several cards: %s", strings.Join(serials, ", "))
	case len(known) > 0:
		return agentwire.Card{}, failf("insert it; there now: card "+strings.Join(serials, ", card "), "card %d is in no reader", serial)
	case len(cards) > 0:
		return agentwire.Card{}, notReady(cards[0])
	}
	return agentwire.Card{}, failf("insert one; holdfast doctor finds out why one is not seen", "there is no card in any reader")
}

// notReady returns an error when a card cannot be used.
func notReady(card agentwire.Card) error {
	if card.Serial != 0 && (card.State == string(keys.StateReady) || card.State == string(keys.StateLocked)) {
		return nil
	}
	return failf(cmp.Or(card.Hint, "holdfast doctor looks closer"), "%s is %s: %s", cardName(card), card.State, card.Reason)
}

// cardName returns the name of a card, or of a reader whose card is unknown.
func cardName(card agentwire.Card) string {
	if card.Serial == 0 {
		return "reader " + card.Reader
	}
	return fmt.Sprintf("card %d", card.Serial)
}
