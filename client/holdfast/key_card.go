package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

// pivBackend is the name of the backend whose devices are cards.
const pivBackend = "piv"

// cardOptions holds the options of `key create` for a key on a card.
type cardOptions struct {
	agentwire.OnCard
	management secretSource
	yes        bool
}

func (o *cardOptions) flags(a *app, cmd *cobra.Command) {
	f := cmd.Flags()
	a.cardFlag(cmd, &o.Card)
	slotFlag(cmd, &o.Slot, "the `SLOT` of the card: 9a, 9c, 9d, 9e, or 82 to 95 (default a free one: 9a, then 82 to 95)")
	f.StringVar(&o.PINPolicy, "pin-policy", "", "when the card wants its PIN, the `POLICY`: "+words(keys.PINPolicies())+" (default once)")
	f.StringVar(&o.TouchPolicy, "touch-policy", "", "when the card wants a touch, the `POLICY`: "+words(keys.TouchPolicies())+" (default never)")
	complete(cmd, "pin-policy", keys.PINPolicies())
	complete(cmd, "touch-policy", keys.TouchPolicies())
	f.BoolVar(&o.Overwrite, "overwrite", false, "also in a slot that holds a key, which is lost for ever")
	f.BoolVar(&o.yes, "yes", false, "do not ask before a key is overwritten")
	f.BoolVar(&o.AllowUnattested, "allow-unattested", false, "also on a card that cannot prove that it made the key")
	o.management.flag(cmd, "management-key-fd", "card's management key, in hex, where the card does not keep it,")
}

// slotFlag adds the option that names a slot.
func slotFlag(cmd *cobra.Command, slot *string, usage string) {
	cmd.Flags().StringVar(slot, "slot", "", usage)
	complete(cmd, "slot", slots())
}

// slots lists the slots for keys of users.
func slots() []string {
	var all []string
	for n := 0x82; n <= 0x9e; n++ {
		if s := fmt.Sprintf("%02x", n); checkSlot(s) == nil {
			all = append(all, s)
		}
	}
	return all
}

func checkSlot(slot string) error {
	_, err := keys.ParseSlot(slot)
	return usageError(err)
}

// given reports whether an option for cards was given.
func (o *cardOptions) given() bool {
	return o.OnCard.Card != 0 || o.Slot != "" || o.PINPolicy != "" || o.TouchPolicy != "" || o.Overwrite || o.AllowUnattested || o.management.given()
}

// check finds mistakes that need no agent.
func (o *cardOptions) check() error {
	if o.Slot != "" {
		if err := checkSlot(o.Slot); err != nil {
			return err
		}
	}
	switch {
	case o.Overwrite && o.Slot == "":
		return usagef("holdfast piv list shows what is in the slots", "--overwrite needs --slot: which key is to be lost?")
	case o.PINPolicy != "" && !slices.Contains(keys.PINPolicies(), keys.Policy(o.PINPolicy)):
		return usagef(didYouMean(o.PINPolicy, texts(keys.PINPolicies()), "one of "+words(keys.PINPolicies())), "--pin-policy %.20q is not known", o.PINPolicy)
	case o.TouchPolicy != "" && !slices.Contains(keys.TouchPolicies(), keys.Policy(o.TouchPolicy)):
		return usagef(didYouMean(o.TouchPolicy, texts(keys.TouchPolicies()), "one of "+words(keys.TouchPolicies())), "--touch-policy %.20q is not known", o.TouchPolicy)
	}
	return nil
}

// createOnCard makes a key on a card. The card's PIN gives access to the management key
// on the card, so keys without a PIN need it too.
func (a *app) createOnCard(ctx context.Context, c *client.Client, o *createOptions) (agentwire.Key, error) {
	card, err := a.card(ctx, c, o.card.OnCard.Card)
	if err == nil {
		err = refuseFactory(card)
	}
	if err == nil {
		err = a.agreeToOverwrite(ctx, card, &o.card)
	}
	if err != nil {
		return agentwire.Key{}, err
	}
	on := o.card.OnCard
	on.Card, o.Backend = card.Serial, pivBackend
	defer func() { clear(on.ManagementKey) }()
	if o.card.management.given() {
		if on.ManagementKey, err = o.card.management.readManagementKey(ctx, a, ""); err != nil {
			return agentwire.Key{}, err
		}
	}
	if on.ManagementKey == nil || on.PINPolicy != string(keys.PolicyNever) {
		o.source.name = "PIN"
		if o.PIN, err = a.present(ctx, &o.source, card, "PIN", card.PINTries); err != nil {
			return agentwire.Key{}, err
		}
	}
	o.OnCard = &on
	if on.TouchPolicy != "" && on.TouchPolicy != string(keys.PolicyNever) { // the new key signs once
		defer a.expectTouch(ctx, c, o.Name, &on)()
	}
	return a.makeKey(ctx, c, o.CreateKeyParameters)
}

// refuseFactory rejects a card with the factory's codes, as the agent does, before the
// user types its PIN.
func refuseFactory(card agentwire.Card) error {
	var known []string
	for _, code := range []struct {
		name    string
		factory *bool
	}{{"PIN", card.DefaultPIN}, {"PUK", card.DefaultPUK}, {"management key", card.DefaultManagement}} {
		if code.factory != nil && *code.factory {
			known = append(known, code.name)
		}
	}
	if len(known) == 0 {
		return nil
	}
	return failf(fmt.Sprintf("holdfast piv setup --card %d gives it its own", card.Serial),
		"card %d still has factory defaults, which are public: %s", card.Serial, strings.Join(known, ", "))
}

// agreeToOverwrite asks for confirmation before the key in a slot is lost, and returns
// an error at once where it must not be.
func (a *app) agreeToOverwrite(ctx context.Context, card agentwire.Card, o *cardOptions) error {
	i := slices.IndexFunc(card.Slots, func(s agentwire.CardSlot) bool { return s.Slot == o.Slot })
	if i < 0 {
		return nil
	}
	what := contents(card.Slots[i])
	if !o.Overwrite {
		return failf("leave --slot out to take a free one; --overwrite destroys the key in the slot",
			"slot %s of card %d holds %s", o.Slot, card.Serial, what)
	}
	if o.yes {
		return nil
	}
	question := fmt.Sprintf("Overwrite slot %s of card %d? It holds %s. There is no copy of the key anywhere.", o.Slot, card.Serial, what)
	return a.confirm(ctx, question, "--yes says it on the command line")
}

// contents describes the key or certificate in a slot, for a sentence.
func contents(s agentwire.CardSlot) string {
	parts := []string{"a key"}
	if s.Algorithm != "" {
		parts[0] = "a key (" + algorithmOf(agentwire.Key{Algorithm: s.Algorithm, RSABits: s.RSABits}) + ")"
	}
	switch {
	case s.Key != "":
		parts[0] += " that the agent knows as " + s.Key
	case s.Taken:
		parts[0] += " that belongs to another user of the agent"
	}
	if len(s.Certificate) > 0 {
		parts = append(parts, "a certificate for "+oneLine(slotCertificate(s)))
	}
	return strings.Join(parts, " and ")
}

// parseConfirm reads when a key needs confirmation: once, always, or process:10m.
func parseConfirm(text string) (*agentwire.Confirm, error) {
	if text == "" {
		return nil, nil
	}
	when, span, timed := strings.Cut(text, ":")
	if !timed && (when == "once" || when == "always") {
		return &agentwire.Confirm{When: when}, nil
	}
	if d, err := time.ParseDuration(span); when == "process" && err == nil && d >= time.Minute && d%time.Minute == 0 {
		return &agentwire.Confirm{When: when, Minutes: int(d.Minutes())}, nil
	}
	return nil, usagef("once, always, or process:10m for ten minutes in each process", "--confirm %s is not known", strconv.Quote(fmt.Sprintf("%.20s", text)))
}

// tellYes notes what a key with confirmation needs before it can be used. A touch for
// each signature confirms each.
func (a *app) tellYes(k agentwire.Key) {
	if k.Confirm == nil || k.Place != nil && k.Place.TouchPolicy == string(keys.PolicyAlways) {
		return
	}
	a.note("the agent asks for confirmation on the desktop of the user of key %s, and denies the signature where it reaches no desktop; on a card, --touch-policy always takes the touch as confirmation", k.Name)
}

func confirmFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "confirm", "", "`WHEN` a user must confirm a use, on the desktop: once, always, process:10m (once for each process and 10 minutes)")
	complete(cmd, "confirm", []string{"once", "always", "process:10m"})
}
