package keystest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// Describe has change adjust what Cards says of a card, from now on.
func (c *MemoryCards) Describe(serial uint32, change func(*keys.Card)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cards[serial].adjust = change
}

// Cards implements keys.CardHolder.
func (c *MemoryCards) Cards(ctx context.Context) ([]keys.Card, error) {
	var list []keys.Card
	for _, card := range c.there() {
		if err := card.enter(ctx); err != nil {
			return nil, err
		}
		c.mu.Lock()
		list = append(list, card.describe())
		c.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b keys.Card) int { return cmp.Compare(a.Serial, b.Serial) })
	return list, nil
}

// describe returns the card for Cards. MemoryCards.mu is held.
func (card *memoryCard) describe() keys.Card {
	card.mu.Lock()
	tries := memoryWrongPINs - card.wrong
	card.mu.Unlock()
	no, yes, puk := false, true, 3
	d := keys.Card{
		Serial: card.serial, Reader: fmt.Sprintf("Memory %d", card.serial), Firmware: "5.4.3", State: keys.StateReady,
		PINTries: &tries, PUKTries: &puk, DefaultPIN: &no, DefaultPUK: &no, DefaultManagement: &no, ProtectedManagement: true, Attests: &yes,
	}
	for _, slot := range slices.Sorted(maps.Keys(card.slots)) {
		d.Slots = append(d.Slots, *card.slots[slot])
	}
	if card.adjust != nil {
		card.adjust(&d)
	}
	return d
}

// TriesLeft implements keys.CardHolder.
func (c *MemoryCards) TriesLeft(ctx context.Context, m keys.Material) (*int, error) {
	if err := c.Check(ctx, m); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.cards[m.Card.Serial].describe()
	return d.PINTries, nil
}

// SetUp implements keys.CardHolder.
func (c *MemoryCards) SetUp(ctx context.Context, serial uint32, s keys.CardSetUp) error {
	return c.replace(ctx, serial, s.OldPIN, s.PIN, func(card *memoryCard) error {
		if !bytes.Equal(card.puk, s.OldPUK) {
			return &fault.Error{Kind: fault.PINRequired, Message: "the PUK is wrong"}
		}
		card.puk = bytes.Clone(s.PUK)
		return nil
	})
}

// ChangePIN implements keys.CardHolder.
func (c *MemoryCards) ChangePIN(ctx context.Context, serial uint32, old, new []byte) error {
	return c.replace(ctx, serial, old, new, func(*memoryCard) error { return nil })
}

// replace changes the PIN when old is right and also agrees.
func (c *MemoryCards) replace(ctx context.Context, serial uint32, old, new []byte, also func(*memoryCard) error) error {
	return c.manage(ctx, serial, new, func(card *memoryCard) error {
		card.mu.Lock()
		defer card.mu.Unlock()
		if err := card.prove(old, nil); err != nil {
			return err
		}
		if err := also(card); err != nil {
			return err
		}
		card.pin = bytes.Clone(new)
		return nil
	})
}

// ChangePUK implements keys.CardHolder.
func (c *MemoryCards) ChangePUK(ctx context.Context, serial uint32, old, new []byte) error {
	return c.manage(ctx, serial, new, func(card *memoryCard) error {
		if !bytes.Equal(card.puk, old) {
			return &fault.Error{Kind: fault.PINRequired, Message: "the PUK is wrong"}
		}
		card.puk = bytes.Clone(new)
		return nil
	})
}

// Unblock implements keys.CardHolder.
func (c *MemoryCards) Unblock(ctx context.Context, serial uint32, puk, new []byte) error {
	return c.manage(ctx, serial, new, func(card *memoryCard) error {
		if !bytes.Equal(card.puk, puk) {
			return &fault.Error{Kind: fault.PINRequired, Message: "the PUK is wrong"}
		}
		card.mu.Lock()
		defer card.mu.Unlock()
		card.pin, card.wrong = bytes.Clone(new), 0
		return nil
	})
}

// manage checks the new PIN or PUK and does the change on the card.
func (c *MemoryCards) manage(ctx context.Context, serial uint32, new []byte, change func(*memoryCard) error) error {
	if err := keys.CheckCardPIN(new); err != nil {
		return err
	}
	card, err := c.present(serial)
	if err != nil {
		return err
	}
	if err := card.enter(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return change(card)
}

// StoreCertificate implements keys.CardHolder. Cards shows it.
func (c *MemoryCards) StoreCertificate(ctx context.Context, m keys.Material, certificate, pin, management []byte) error {
	card, err := c.of(m)
	if err != nil {
		return err
	}
	if err := card.Memory.Check(ctx, m); err != nil {
		return err
	}
	if len(management) == 0 {
		if err := card.mayStore(m, pin); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if card.slots[m.Card.Slot] == nil {
		card.slots[m.Card.Slot] = &keys.CardSlot{Slot: m.Card.Slot}
	}
	card.slots[m.Card.Slot].Certificate = bytes.Clone(certificate)
	return nil
}

// mayStore wants the card's PIN, or m unlocked.
func (card *memoryCard) mayStore(m keys.Material, pin []byte) error {
	card.mu.Lock()
	defer card.mu.Unlock()
	if len(pin) > 0 {
		return card.prove(pin, nil)
	}
	if !time.Now().Before(card.unlocked[string(m.Device)]) {
		return &fault.Error{Kind: fault.PINRequired, Message: "the card wants its PIN before it stores a certificate"}
	}
	return nil
}

// Status implements keys.Backend.
func (c *MemoryCards) Status(ctx context.Context) keys.Status {
	s := keys.Status{Backend: c.Name(), Device: "piv", State: keys.StateAbsent, Reason: "no card is in a reader", Since: time.Now()}
	for _, card := range c.there() {
		one := card.Memory.Status(ctx)
		one.Device = "card:" + unit(card.serial)
		s.Units = append(s.Units, one)
		if s.State != keys.StateReady {
			s.State, s.Reason, s.Hint, s.Since, s.Can = one.State, one.Reason, one.Hint, one.Since, one.Can
		}
	}
	slices.SortFunc(s.Units, func(a, b keys.Status) int { return cmp.Compare(a.Device, b.Device) })
	return s
}

// Close implements keys.Backend.
func (c *MemoryCards) Close() error {
	c.each(func(card *memoryCard) { _ = card.Memory.Close() }) // a Memory closes without fail
	return nil
}

// Reopen makes closed MemoryCards usable again; see [Memory.Reopen].
func (c *MemoryCards) Reopen() { c.each(func(card *memoryCard) { card.Memory.Reopen() }) }
