package piv

import (
	"strings"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/attestation"
)

// spent returns an error when too few tries are left to send the card a PIN. Nil
// tries are unknown.
func spent(serial uint32, pin, puk *int) *fault.Error {
	if pin == nil || *pin > 1 {
		return nil
	}
	e := &fault.Error{Kind: fault.PINBlocked, Message: "the card's PIN is blocked", Next: fault.Next{Do: fault.Unblock, Card: serial}}
	if *pin == 1 {
		e.Message = "the card's PIN has one try left, and holdfast never uses the last one"
	}
	switch {
	case puk == nil || *puk > 1:
		return e
	case *puk == 1:
		e.Message += ", and its PUK has one try left, and holdfast uses neither"
	default:
		e.Message += ", and so is its PUK"
	}
	e.Hint, e.Next = "only a reset is left, and the card's keys are lost by it: ykman piv reset", fault.Next{}
	return e
}

// noted adds the notes for the card's owner.
func noted(c keys.Card) keys.Card {
	add := func(message, hint string) { c.Notes = append(c.Notes, keys.CardNote{Message: message, Hint: hint}) }
	step := func(message string, next fault.Next) {
		c.Notes = append(c.Notes, keys.CardNote{Message: message, Next: next})
	}
	if c.State == keys.StateBusy && c.Next.Do == fault.ShareCard {
		step(c.Reason, c.Next)
	}
	if c.State != keys.StateReady && c.State != keys.StateLocked {
		return c
	}
	if named := factorySecrets(c); named != "" {
		step(named, fault.Next{Do: fault.SetUpCard, Card: c.Serial})
	}
	if c.PINTries != nil && *c.PINTries == 2 {
		add("2 tries of the PIN are left, the last of which is never spent", "enter it with care: the right one gives all tries back")
	}
	notePUK(c, add)
	for _, w := range attestation.Warnings(c.Firmware, "") {
		add(w.Message, w.Hint)
	}
	return c
}

// noteProof adds a note for a card that does not prove which keys it made, with the reason.
func noteProof(c keys.Card, why error) keys.Card {
	if e, ok := fault.AsError(why); ok {
		c.Notes = append(c.Notes, keys.CardNote{Message: "the card cannot prove that it made its keys: " + e.Message, Hint: e.Hint, Next: e.Next})
	}
	return c
}

// factorySecrets describes the card's secrets that are the factory's; it is empty when none
// is.
func factorySecrets(c keys.Card) string {
	var names []string
	for _, secret := range []struct {
		name    string
		factory *bool
	}{{"PIN", c.DefaultPIN}, {"PUK", c.DefaultPUK}, {"management key", c.DefaultManagement}} {
		if secret.factory != nil && *secret.factory {
			names = append(names, secret.name)
		}
	}
	switch n := len(names); n {
	case 0:
		return ""
	case 1:
		return "the " + names[0] + " is the factory default, which is public"
	default:
		return "the " + strings.Join(names[:n-1], ", ") + " and " + names[n-1] + " are the factory defaults, which are public"
	}
}

// notePUK notes the tries of the PUK, unless the card's state reports them.
func notePUK(c keys.Card, add func(message, hint string)) {
	const lost = "without its PUK a card whose PIN is blocked can only be reset, and loses its keys"
	switch {
	case c.PUKTries == nil:
		add("the card cannot tell how many tries of its PUK are left", lost)
	case c.State == keys.StateLocked && *c.PUKTries <= 1: // the state reports it
	case *c.PUKTries == 0:
		add("the PUK is blocked", lost)
	case *c.PUKTries == 1:
		add("1 try of the PUK is left, and holdfast never uses the last one", lost)
	case *c.PUKTries == 2:
		add("2 tries of the PUK are left, the last of which is never spent", lost)
	}
}
