package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
)

// setUpOptions holds the options of `piv setup`.
type setUpOptions struct {
	card                          uint32
	yes, generatePUK              bool
	oldPIN, oldPUK, oldManagement secretSource
	pin, puk                      secretSource
}

func (a *app) pivSetUp() *cobra.Command {
	var o setUpOptions
	cmd := &cobra.Command{
		Use: "setup", Short: "give a card a PIN, a PUK and a management key of its own",
		Long: `The first thing to do with a new card: every card is sold with the same PIN, PUK
and management key. The command shows the card and what it will replace, and asks
before it does so. The new management key is random and stays on the card, protected
by the PIN. Keys and certificates on the card stay as they are.

The command asks for PIN and PUK on the terminal, and for the old ones where they
are not the factory's. Several --…-fd options may name one descriptor, which then
has a line for each, in the order of the help text of this command.`,
		Example: indent("holdfast piv setup\nholdfast piv setup --yes --pin-fd 0 --generate-puk <pin >puk"),
		Args:    arguments(),
		PreRunE: exclusive("generate-puk", "puk-fd"),
		RunE:    a.asking(func(ctx context.Context, c *client.Client, _ []string) error { return a.setUp(ctx, c, &o) }),
	}
	f := cmd.Flags()
	f.SortFlags = false
	a.cardFlag(cmd, &o.card)
	f.BoolVar(&o.yes, "yes", false, "do not ask before PIN, PUK and management key are replaced")
	f.BoolVar(&o.generatePUK, "generate-puk", false, "make a random PUK and print it, once")
	o.oldPIN.flag(cmd, "old-pin-fd", "old PIN")
	o.oldPUK.flag(cmd, "old-puk-fd", "old PUK")
	o.oldManagement.flag(cmd, "old-management-key-fd", "old management key, in hex,")
	o.pin.flag(cmd, "pin-fd", "new PIN")
	o.puk.flag(cmd, "puk-fd", "new PUK")
	a.jsonFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("generate-puk", "json") // the PUK is printed by itself
	return cmd
}

func (a *app) setUp(ctx context.Context, c *client.Client, o *setUpOptions) error {
	card, err := a.card(ctx, c, o.card)
	if err != nil {
		return err
	}
	if err := a.agreeToSetUp(ctx, card, o); err != nil {
		return err
	}
	p := agentwire.SetUpCardParameters{Card: card.Serial}
	defer func() {
		for _, secret := range [][]byte{p.OldPIN, p.OldPUK, p.OldManagementKey, p.PIN, p.PUK} {
			clear(secret)
		}
	}()
	if err := a.oldSecrets(ctx, card, o, &p); err != nil {
		return err
	}
	if err := a.newSecrets(ctx, card, o, &p); err != nil {
		return err
	}
	stop := a.progress("setting up the card")
	err = c.SetUpCard(ctx, p)
	stop()
	if err != nil {
		return wrongSecret(err, "PIN")
	}
	if err := a.say(changedCard{card.Serial, []string{"PIN", "PUK", "management key"}}, "card %d has a new PIN, PUK and management key", card.Serial); err != nil {
		return err
	}
	a.note("next: holdfast key create NAME --backend piv --purpose tls-client makes a key on it")
	return nil
}

// agreeToSetUp shows the card and what will be replaced, and asks for confirmation.
func (a *app) agreeToSetUp(ctx context.Context, card agentwire.Card, o *setUpOptions) error {
	if card.PUKTries != nil && *card.PUKTries == 0 {
		return personf("ykman piv reset resets the card to its factory state; every key on it is lost",
			"the PUK of card %d is blocked, so it cannot be replaced", card.Serial)
	}
	card.Notes = slices.DeleteFunc(slices.Clone(card.Notes), func(n agentwire.Notice) bool { return does(n.Next, fault.SetUpCard) })
	if err := printCard(a.stderr, card); err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "\n%s\nThis will be replaced on card %d:\n", codes, card.Serial)
	if err := table(a.stderr, replacedRows(card, o.generatePUK)...); err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "%s\nKeys and certificates in its slots stay as they are.\n", consequence(card))
	if o.yes {
		return nil
	}
	return a.confirm(ctx, fmt.Sprintf("Replace them on card %d?", card.Serial), "--yes says it on the command line")
}

// codes explains the codes that the user chooses.
const codes = `The PIN is what you type to use the card's keys: 6 to 8 digits, letters or signs.
The PUK gives the card a new PIN when that is blocked or lost: write the PUK down and keep it elsewhere.
The management key lets programs make and replace keys on the card: it is never typed.
`

// replacedRows lists each code with its present and its new value.
func replacedRows(card agentwire.Card, generatePUK bool) [][]string {
	puk := "one that you choose"
	if generatePUK {
		puk = "a random one, which is printed once"
	}
	return [][]string{
		{"", "NOW", "THEN"},
		{"PIN", whose(card.DefaultPIN), "one that you choose"},
		{"PUK", whose(card.DefaultPUK), puk},
		{"management key", whose(card.DefaultManagement), "a random one, kept on the card, where the PIN opens it"},
	}
}

// whose describes whether a code is still the factory's.
func whose(factory *bool) string {
	switch {
	case factory == nil:
		return "not known"
	case *factory:
		return "the factory's"
	}
	return "set before"
}

// consequence describes the effect of a new management key on other programs.
func consequence(card agentwire.Card) string {
	switch {
	case card.DefaultManagement != nil && *card.DefaultManagement:
		return "Programs that use the factory's management key can no longer make keys on it; ykman asks for the PIN instead."
	case card.ProtectedManagement:
		return "ykman works as before: the management key is on the card already, and ykman asks for the PIN."
	}
	return "Programs that use its present management key can no longer make keys on it; ykman asks for the PIN instead."
}

// The codes of new cards: NIST SP 800-73-4 leaves them to the maker, and Yubico
// documents these.
const (
	factoryPIN        = "123456"
	factoryPUK        = "12345678"
	factoryManagement = "\x01\x02\x03\x04\x05\x06\x07\x08\x01\x02\x03\x04\x05\x06\x07\x08\x01\x02\x03\x04\x05\x06\x07\x08"
)

// oldSecrets reads the card's present codes, except those that the card reports as the
// factory's, and except a management key that the PIN protects.
func (a *app) oldSecrets(ctx context.Context, card agentwire.Card, o *setUpOptions, p *agentwire.SetUpCardParameters) (err error) {
	if p.OldPIN, err = a.oldSecret(ctx, &o.oldPIN, card, "PIN", card.DefaultPIN, card.PINTries, factoryPIN); err != nil {
		return err
	}
	if p.OldPUK, err = a.oldSecret(ctx, &o.oldPUK, card, "PUK", card.DefaultPUK, card.PUKTries, factoryPUK); err != nil {
		return err
	}
	p.OldManagementKey, err = a.oldManagementKey(ctx, &o.oldManagement, card)
	return err
}

func (a *app) oldSecret(ctx context.Context, source *secretSource, card agentwire.Card, what string, factory *bool, tries *int, usual string) ([]byte, error) {
	switch {
	case factory == nil && !source.given():
		prompt := fmt.Sprintf("The %s of card %d%s (nothing: the factory's %s): ", source.name, card.Serial, triesLeft(tries), usual)
		old, err := source.readAny(ctx, a, prompt, "")
		if err == nil && len(old) == 0 {
			old = []byte(usual)
		}
		if err == nil {
			err = checkCode(source.name, old)
		}
		return old, err
	case factory != nil && *factory && !source.given():
		return nil, nil
	}
	return a.present(ctx, source, card, what, tries)
}

func (a *app) oldManagementKey(ctx context.Context, source *secretSource, card agentwire.Card) ([]byte, error) {
	factory := card.DefaultManagement
	if !source.given() && (card.ProtectedManagement || factory != nil && *factory) {
		return nil, nil
	}
	key, err := source.readManagementKey(ctx, a, "The management key now, in hex (nothing: the factory's): ")
	if err == nil && len(key) == 0 {
		key = []byte(factoryManagement)
	}
	return key, err
}

// triesLeft returns the tries that are left, for prompts.
func triesLeft(tries *int) string {
	if tries == nil {
		return ""
	}
	return fmt.Sprintf(" (%s left)", plural(*tries, "try", "tries"))
}

func (a *app) newSecrets(ctx context.Context, card agentwire.Card, o *setUpOptions, p *agentwire.SetUpCardParameters) (err error) {
	if p.PIN, err = o.pin.readNew(ctx, a); err != nil {
		return err
	}
	if p.PUK, err = a.newPUK(ctx, &o.puk, o.generatePUK, card.Serial); err != nil {
		return err
	}
	return checkDifferent(p.PIN, p.PUK)
}
