package agent

import (
	"context"
	"fmt"
	"slices"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// placed completes a template with the PIN and the place that the caller gives. A card
// needs its PIN to make a key, even a key that signs without a PIN.
func (a *Agent) placed(p *agentwire.CreateKeyParameters, t *keys.Template) error {
	d, err := a.device(p.Backend)
	if err != nil {
		return nil // a missing backend is an error only after policy has decided
	}
	if _, ok := d.backend.(keys.CardHolder); ok {
		return placeOnCard(p, t)
	}
	switch {
	case p.OnCard != nil:
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("backend %s has no cards", d.backend.Name()), Hint: "choose a backend that has cards: --backend piv"}
	case len(p.PIN) > 0:
		t.PIN = p.PIN
		return keys.CheckPIN(p.PIN)
	}
	return nil
}

func placeOnCard(p *agentwire.CreateKeyParameters, t *keys.Template) error {
	on := agentwire.OnCard{}
	if p.OnCard != nil {
		on = *p.OnCard
	}
	setDefault(&on.PINPolicy, string(keys.PolicyOnce))
	setDefault(&on.TouchPolicy, string(keys.PolicyNever))
	t.Card = keys.OnCard{
		Serial: on.Card, Slot: on.Slot, PINPolicy: keys.Policy(on.PINPolicy), TouchPolicy: keys.Policy(on.TouchPolicy),
		Overwrite: on.Overwrite, AllowUnattested: on.AllowUnattested, ManagementKey: on.ManagementKey,
	}
	if !slices.Contains(keys.PINPolicies(), t.Card.PINPolicy) {
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("%.20q is no PIN policy", on.PINPolicy), Hint: fmt.Sprintf("one of %v", keys.PINPolicies())}
	}
	if !slices.Contains(keys.TouchPolicies(), t.Card.TouchPolicy) {
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("%.20q is no touch policy", on.TouchPolicy), Hint: fmt.Sprintf("one of %v", keys.TouchPolicies())}
	}
	if on.Slot != "" {
		if _, err := keys.ParseSlot(on.Slot); err != nil {
			return err
		}
	}
	if len(p.PIN) == 0 {
		return nil
	}
	*t = withCardPIN(*t, p.PIN)
	return keys.CheckCardPIN(p.PIN)
}

// withCardPIN returns t with the card's PIN: for the card, and for the key if it will
// need a PIN.
func withCardPIN(t keys.Template, pin []byte) keys.Template {
	t.Card.PIN = pin
	if t.Card.PINPolicy != keys.PolicyNever {
		t.PIN = pin
	}
	return t
}

// adopted completes the template of a key to adopt with its card and the card's PIN.
// The PIN is required because the file that names the key is not a secret.
func (a *Agent) adopted(p *agentwire.AdoptKeyParameters, t *keys.Template) error {
	d, err := a.device(p.Backend)
	if err != nil {
		return nil // as in placed
	}
	if _, ok := d.backend.(keys.CardHolder); ok {
		t.Card.Serial = cardOf([]byte(p.File))
	} else if len(p.PIN) > 0 {
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("backend %s adopts a key without a PIN", d.backend.Name()), Hint: "leave the PIN out"}
	}
	if len(p.PIN) == 0 {
		return nil
	}
	*t = withCardPIN(*t, p.PIN)
	return keys.CheckCardPIN(p.PIN)
}

// addOnCard is addOn with a card's PIN. When the caller gave none, the agent prompts a
// user for it. The context caller ends when the caller leaves; work that the card has
// begun continues until ctx ends.
func (r *request) addOnCard(ctx, caller context.Context, d *device, j job) error {
	holder := d.backend.(keys.CardHolder)
	serial, err := soleCard(caller, holder, j.t.Card.Serial)
	if err != nil {
		return err
	}
	j.t.Card.Serial = serial
	if j.t.Card.Slot != "" {
		release, err := r.claim(slot{serial, j.t.Card.Slot}, true)
		if err != nil {
			return err
		}
		defer release()
	}
	if len(j.t.Card.PIN) == 0 && j.t.Card.PINPolicy == keys.PolicyNever && len(j.t.Card.ManagementKey) > 0 {
		return r.addOn(ctx, d.ofCard(serial), j)
	}
	if err := r.mayTry(serial); err != nil {
		return err
	}
	try := func(pin []byte) error {
		if err := keys.CheckCardPIN(pin); err != nil {
			return &notAPIN{err}
		}
		with := j
		with.t = withCardPIN(j.t, pin)
		return r.addOn(ctx, d.ofCard(serial), with)
	}
	if len(j.t.Card.PIN) > 0 {
		return try(j.t.Card.PIN)
	}
	return r.askCardPIN(caller, holder, j, try)
}

// askCardPIN asks a user for the PIN of the card that j is on, and gives it to try.
func (r *request) askCardPIN(ctx context.Context, h keys.CardHolder, j job, try func(pin []byte) error) error {
	wanted := fault.Error{
		Kind: fault.PINRequired, Message: "making a key on a card takes the card's PIN",
		Hint: "give it on a terminal, or with `holdfast key create --pin-fd 3 3<FILE`",
	}
	if adopts(j.t) {
		wanted.Message, wanted.Hint = "adopting a key on a card takes the card's PIN", "try again where the agent can show a prompt"
	}
	if r.agent.Person == nil {
		return &wanted
	}
	serial := j.t.Card.Serial
	s := r.subject(j.op, *j.rec)
	s.Device, s.Secret = cardName(serial), secretOfCard(serial)
	left := func(ctx context.Context) (int, error) { return cardTries(ctx, h, serial) }
	return explain(r.agent.askUntilRight(ctx, s, left, try), wanted)
}

// cardTries returns how many wrong PINs may still be sent to a card.
func cardTries(ctx context.Context, h keys.CardHolder, serial uint32) (int, error) {
	all, err := h.Cards(ctx)
	if err != nil {
		return 0, err
	}
	for _, c := range all {
		if c.Serial == serial {
			return spendable(serial, c.PINTries)
		}
	}
	return 0, &fault.Error{Kind: fault.DeviceAbsent, Message: cardName(serial) + " is in no reader", Next: fault.Next{Do: fault.InsertCard, Card: serial}}
}

// soleCard returns the serial number of the card to make a key on: the given one, or
// the only card that there is. With several cards the caller must choose, because a
// PIN is for one card.
func soleCard(ctx context.Context, h keys.CardHolder, serial uint32) (uint32, error) {
	if serial != 0 {
		return serial, nil
	}
	all, err := h.Cards(ctx)
	if err != nil {
		return 0, err
	}
	none := &fault.Error{Kind: fault.DeviceAbsent, Message: "there is no card", Next: fault.Next{Do: fault.InsertCard}}
	var found []uint32
	for _, c := range all {
		switch {
		case c.Serial != 0:
			found = append(found, c.Serial)
		case c.State == keys.StateBusy:
			none = &fault.Error{Kind: fault.Busy, Message: c.Reason, Hint: c.Hint, Next: c.Next}
		}
	}
	switch len(found) {
	case 0:
		return 0, none
	case 1:
		return found[0], nil
	}
	return 0, &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("there are %d cards", len(found)), Hint: fmt.Sprintf("name one of %v: --card", found)}
}

func wirePlace(p *keys.Place) *agentwire.Place {
	if p == nil {
		return nil
	}
	return &agentwire.Place{Card: p.Serial, Slot: p.Slot, PINPolicy: string(p.PINPolicy), TouchPolicy: string(p.TouchPolicy), Attested: p.Attested}
}
