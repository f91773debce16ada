package keystest

import (
	"context"
	"fmt"
	"slices"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// Create implements keys.Backend. A card wants its PIN, or any management key.
func (c *MemoryCards) Create(ctx context.Context, t keys.Template) (keys.Material, error) {
	place, err := choosePlace(t)
	if err != nil {
		return keys.Material{}, err
	}
	card, err := c.present(t.Card.Serial)
	if err != nil {
		return keys.Material{}, err
	}
	if err := card.enter(ctx); err != nil {
		return keys.Material{}, err
	}
	if err := card.opened(t); err != nil {
		return keys.Material{}, err
	}
	c.mu.Lock()
	place.Serial = card.serial
	place.Slot, err = card.reserve(t.Card)
	c.mu.Unlock()
	if err != nil {
		return keys.Material{}, err
	}
	var pin []byte
	if place.PINPolicy != keys.PolicyNever {
		pin = []byte(CardPIN) // that there is one; which, the card says
	}
	m, err := card.make(t, pin, &place)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		delete(card.slots, place.Slot)
		return keys.Material{}, err
	}
	card.fill(place, m, t)
	return m, nil
}

// choosePlace returns what the template says of the key's place.
func choosePlace(t keys.Template) (keys.Place, error) {
	p := keys.Place{PINPolicy: t.Card.PINPolicy, TouchPolicy: t.Card.TouchPolicy, Attested: true}
	if p.PINPolicy == "" {
		p.PINPolicy = keys.PolicyNever
		if len(t.PIN) > 0 {
			p.PINPolicy = keys.PolicyOnce
		}
	}
	if p.TouchPolicy == "" {
		p.TouchPolicy = keys.PolicyNever
	}
	if !slices.Contains(keys.PINPolicies(), p.PINPolicy) || !slices.Contains(keys.TouchPolicies(), p.TouchPolicy) {
		return p, &fault.Error{Kind: fault.BadRequest, Message: "the policy is not known"}
	}
	for _, pin := range [][]byte{t.PIN, t.Card.PIN} {
		if len(pin) > 0 {
			if err := keys.CheckCardPIN(pin); err != nil {
				return p, err
			}
		}
	}
	return p, nil
}

// opened reports whether t holds what the card wants to see before it makes a
// key.
func (card *memoryCard) opened(t keys.Template) error {
	pin := t.PIN
	if len(pin) == 0 {
		pin = t.Card.PIN
	}
	switch {
	case len(pin) == 0 && len(t.Card.ManagementKey) > 0:
		return nil
	case len(pin) == 0:
		return &fault.Error{Kind: fault.PINRequired, Message: "the card wants its PIN before it makes a key"}
	}
	card.mu.Lock()
	defer card.mu.Unlock()
	return card.prove(pin, nil)
}

// reserve finds the slot. MemoryCards.mu is held.
func (card *memoryCard) reserve(o keys.OnCard) (string, error) {
	if o.Slot != "" {
		if _, err := keys.ParseSlot(o.Slot); err != nil {
			return "", err
		}
		if card.slots[o.Slot] != nil && !o.Overwrite {
			return "", &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("slot %s holds a key", o.Slot), Hint: "choose another slot"}
		}
		card.slots[o.Slot] = &keys.CardSlot{Slot: o.Slot}
		return o.Slot, nil
	}
	for _, slot := range freeSlots() {
		if card.slots[slot] == nil {
			card.slots[slot] = &keys.CardSlot{Slot: slot}
			return slot, nil
		}
	}
	return "", &fault.Error{Kind: fault.Busy, Message: "the card has no free slot"}
}

// freeSlots lists the slots that are taken without being asked for by name.
func freeSlots() []string {
	slots := []string{"9a"}
	for n := 0x82; n <= 0x95; n++ {
		slots = append(slots, fmt.Sprintf("%02x", n))
	}
	return slots
}

// fill notes the key in its slot. MemoryCards.mu is held.
func (card *memoryCard) fill(p keys.Place, m keys.Material, t keys.Template) {
	generated := true
	card.slots[p.Slot] = &keys.CardSlot{
		Slot: p.Slot, Algorithm: t.Algorithm, RSABits: t.RSABits, PINPolicy: p.PINPolicy, TouchPolicy: p.TouchPolicy,
		Generated: &generated, Public: m.Public,
	}
}
