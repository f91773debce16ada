package main

import (
	"context"
	"fmt"
	"slices"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// maxAnswers is the number of times that the user is asked for one PIN, malformed
// answers included.
const maxAnswers = 5

// withPIN calls use with the PIN of a key. It asks the user only when a PIN can work,
// and again after one that is malformed or wrong. It tries a PIN from a descriptor once.
func (a *app) withPIN(ctx context.Context, c *client.Client, source *secretSource, k agentwire.Key, use func(pin []byte) error) error {
	if source.given() {
		_, err := a.tryPIN(ctx, source, k, "", use)
		return err
	}
	var err error
	var again bool
	for range maxAnswers {
		var tries *int
		if k.Place != nil {
			card, err := a.cardOf(ctx, c, k)
			if err != nil {
				return err
			}
			tries = card.PINTries
		}
		if again, err = a.tryPIN(ctx, source, k, triesLeft(tries), use); !again || ctx.Err() != nil {
			return err
		}
		a.tell("error", explain(err).message)
	}
	return err
}

// tryPIN reads a PIN and tries it once. It reports whether another PIN could work.
func (a *app) tryPIN(ctx context.Context, source *secretSource, k agentwire.Key, tries string, use func(pin []byte) error) (again bool, err error) {
	prompt, check := "PIN for key "+k.Name+": ", keys.CheckPIN
	if k.Place != nil {
		prompt, check = fmt.Sprintf("PIN of card %d, for key %s%s: ", k.Place.Card, k.Name, tries), keys.CheckCardPIN
	}
	pin, err := source.read(ctx, a, prompt, "")
	if err != nil {
		return false, err
	}
	defer clear(pin)
	if err := check(pin); err != nil {
		return true, err
	}
	err = use(pin)
	return fault.KindOf(err) == fault.PINRequired, err
}

// cardOf returns the card of a key, and an error when no PIN can work: the card must
// be there, work, and have a try that may be spent. For a user that may not list cards
// it returns no card: the agent checks the same afterwards.
func (a *app) cardOf(ctx context.Context, c *client.Client, k agentwire.Key) (agentwire.Card, error) {
	cards, err := c.ListCards(ctx)
	if fault.KindOf(err) == fault.Denied {
		return agentwire.Card{}, nil
	}
	if err != nil {
		return agentwire.Card{}, a.machine.aboutPCSCD(err)
	}
	i := slices.IndexFunc(cards, func(card agentwire.Card) bool { return card.Serial == k.Place.Card })
	if i < 0 {
		return agentwire.Card{}, failf(fmt.Sprintf("insert card %d", k.Place.Card), "key %s is on card %d, which is in no reader", k.Name, k.Place.Card)
	}
	card := cards[i]
	if err := notReady(card); err != nil {
		return card, err
	}
	if pinSpent(card) {
		return card, spent(card, "PIN", *card.PINTries)
	}
	return card, nil
}

// hasTerminal reports whether there is a terminal to ask on.
func (a *app) hasTerminal() bool {
	tty, err := a.terminal()
	if err != nil {
		return false
	}
	tty.Close()
	return true
}
