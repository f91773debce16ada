package keystest

import (
	"fmt"
	"slices"
	"strconv"
	"sync"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// CardPIN and CardPUK are those of a new card of [MemoryCards].
const (
	CardPIN = "246813"
	CardPUK = "97531864"
)

// MemoryCards is a backend of software keys on cards, for tests of the code
// above a [keys.CardHolder]. Each card is a [Memory] with faults of its own; see
// [MemoryCards.Card]. [MemoryCards.Insert] and [MemoryCards.Remove] move cards, and keys with a touch policy wait for
// [MemoryCards.Touch]. Its name is "piv", because it stands in for that.
type MemoryCards struct {
	mu      sync.Mutex // guards what follows; not held while a call blocks
	cards   map[uint32]*memoryCard
	changed []func(unit string, gone bool)

	telling sync.Mutex // one call of changed at a time
}

// A memoryCard is one card. MemoryCards.mu guards the fields outside Memory.
type memoryCard struct {
	*Memory
	serial uint32
	gone   bool
	puk    []byte
	slots  map[string]*keys.CardSlot
	touch  touch
	adjust func(*keys.Card)
}

var _ keys.CardHolder = (*MemoryCards)(nil)

// NewMemoryCards returns a backend with a card for each serial, in its reader,
// set up with [CardPIN] and [CardPUK].
func NewMemoryCards(serials ...uint32) *MemoryCards {
	c := &MemoryCards{cards: map[uint32]*memoryCard{}}
	for _, serial := range serials {
		c.cards[serial] = newMemoryCard(serial)
	}
	return c
}

func newMemoryCard(serial uint32) *memoryCard {
	m := NewMemory()
	m.name, m.pin = "piv", []byte(CardPIN)
	return &memoryCard{Memory: m, serial: serial, puk: []byte(CardPUK), slots: map[string]*keys.CardSlot{}, touch: newTouch()}
}

// Name returns "piv".
func (c *MemoryCards) Name() string { return "piv" }

// Unit implements keys.Divided.
func (c *MemoryCards) Unit(m keys.Material) string {
	if m.Backend != c.Name() || m.Card == nil {
		return ""
	}
	return unit(m.Card.Serial)
}

func unit(serial uint32) string { return strconv.FormatUint(uint64(serial), 10) }

// OnChange implements keys.Divided.
func (c *MemoryCards) OnChange(f func(unit string, gone bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = append(c.changed, f)
}

// Card returns the card of a serial number, in a reader or not, with everything
// that a Memory can be told to do; nil when there is none.
func (c *MemoryCards) Card(serial uint32) *Memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	if card := c.cards[serial]; card != nil {
		return card.Memory
	}
	return nil
}

// Insert puts a card that was removed, or a new one, into a reader.
func (c *MemoryCards) Insert(serial uint32) { c.move(serial, false) }

// Remove removes a card from its reader and locks its keys.
func (c *MemoryCards) Remove(serial uint32) { c.move(serial, true) }

func (c *MemoryCards) move(serial uint32, gone bool) {
	c.telling.Lock()
	defer c.telling.Unlock()
	c.mu.Lock()
	if c.cards[serial] == nil {
		c.cards[serial] = newMemoryCard(serial)
	}
	card, tell := c.cards[serial], slices.Clone(c.changed)
	card.gone = gone
	c.mu.Unlock()
	if gone {
		card.Lock(nil)
		card.touch.end(&fault.Error{Kind: fault.DeviceAbsent, Message: "the card was removed"})
	}
	for _, f := range tell {
		f(unit(serial), gone)
	}
}

// present returns the card with the serial number, or the error why it cannot be used.
func (c *MemoryCards) present(serial uint32) (*memoryCard, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var there []uint32
	for _, card := range c.cards {
		if !card.gone {
			there = append(there, card.serial)
		}
	}
	slices.Sort(there)
	switch {
	case len(there) == 0:
		return nil, &fault.Error{Kind: fault.DeviceAbsent, Message: "no card is in a reader", Hint: "insert a card"}
	case serial == 0 && len(there) == 1:
		return c.cards[there[0]], nil
	case serial == 0:
		return nil, &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("there are %d cards", len(there)), Hint: fmt.Sprintf("name one of %v", there)}
	case !slices.Contains(there, serial):
		return nil, &fault.Error{Kind: fault.KeyMismatch, Message: fmt.Sprintf("the key is on card %d, in the reader is card %d", serial, there[0]),
			Hint: fmt.Sprintf("insert card %d", serial)}
	}
	return c.cards[serial], nil
}

// of returns the card that m's key is on.
func (c *MemoryCards) of(m keys.Material) (*memoryCard, error) {
	if m.Backend != c.Name() || m.Card == nil {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: "the key is not on a card"}
	}
	return c.present(m.Card.Serial)
}

// each calls f for every card.
func (c *MemoryCards) each(f func(*memoryCard)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, card := range c.cards {
		f(card)
	}
}
