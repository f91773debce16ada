package keystest

import (
	"context"
	"sync"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// touch lets signatures wait for a touch.
type touch struct {
	mu      sync.Mutex
	waiting []chan error  // each gets what ends its wait
	arrived chan struct{} // closed and replaced when one arrives
}

func newTouch() touch { return touch{arrived: make(chan struct{})} }

// wait returns when the card was touched, or the error that ended the wait.
func (w *touch) wait(ctx context.Context) error {
	end := make(chan error, 1)
	w.mu.Lock()
	w.waiting = append(w.waiting, end)
	close(w.arrived)
	w.arrived = make(chan struct{})
	w.mu.Unlock()
	select {
	case err := <-end:
		return err
	case <-ctx.Done():
		w.leave(end)
		return ended(ctx)
	}
}

func (w *touch) leave(end chan error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.waiting {
		if w.waiting[i] == end {
			w.waiting = append(w.waiting[:i], w.waiting[i+1:]...)
			return
		}
	}
}

// end ends all waits with err.
func (w *touch) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, end := range w.waiting {
		end <- err
	}
	w.waiting = nil
}

// WaitTouch returns when a signature waits for a touch of the card, which must
// be there.
func (c *MemoryCards) WaitTouch(serial uint32) {
	w := c.touchOf(serial)
	for {
		w.mu.Lock()
		waiting, arrived := len(w.waiting), w.arrived
		w.mu.Unlock()
		if waiting > 0 {
			return
		}
		<-arrived
	}
}

// Touch touches the card: every signature that waits for it continues.
func (c *MemoryCards) Touch(serial uint32) { c.touchOf(serial).end(nil) }

// NoTouch ends the wait for a touch as the card does after [keys.MaxTouch].
func (c *MemoryCards) NoTouch(serial uint32) {
	c.touchOf(serial).end(&fault.Error{Kind: fault.TouchTimeout, Message: "the card was not touched", Hint: "try again, and touch it when it blinks"})
}

func (c *MemoryCards) touchOf(serial uint32) *touch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &c.cards[serial].touch
}

// Sign implements keys.Backend. Keys with a touch policy wait each time.
func (c *MemoryCards) Sign(ctx context.Context, m keys.Material, s keys.Scheme, digest []byte) ([]byte, error) {
	card, err := c.of(m)
	if err != nil {
		return nil, err
	}
	signature, err := card.Memory.Sign(ctx, m, s, digest)
	if err != nil || m.Card.TouchPolicy == keys.PolicyNever {
		return signature, err
	}
	if err := card.touch.wait(ctx); err != nil {
		return nil, err
	}
	return signature, nil
}

// Unlock implements keys.Backend.
func (c *MemoryCards) Unlock(ctx context.Context, m keys.Material, pin []byte, until time.Time) error {
	if err := keys.CheckCardPIN(pin); err != nil {
		return err
	}
	card, err := c.of(m)
	if err != nil {
		return err
	}
	return card.Memory.Unlock(ctx, m, pin, until)
}

// Lock implements keys.Backend.
func (c *MemoryCards) Lock(m *keys.Material) {
	c.each(func(card *memoryCard) {
		if m == nil || m.Card != nil && m.Card.Serial == card.serial {
			card.Memory.Lock(m)
		}
	})
}

// Check implements keys.Backend.
func (c *MemoryCards) Check(ctx context.Context, m keys.Material) error {
	card, err := c.of(m)
	if err != nil {
		return err
	}
	return card.Memory.Check(ctx, m)
}

// Persist implements keys.Backend. There is nothing to put anywhere.
func (c *MemoryCards) Persist(ctx context.Context, m keys.Material) error { return c.Check(ctx, m) }

// Delete implements keys.Backend. As with a real card, the slot stays taken.
func (c *MemoryCards) Delete(_ context.Context, m keys.Material) error {
	if c.Unit(m) == "" {
		return &fault.Error{Kind: fault.BadRequest, Message: "the key is not on a card"}
	}
	c.Lock(&m)
	return nil
}

// Export implements keys.Backend. The format is Memory's own.
func (c *MemoryCards) Export(m keys.Material) ([]byte, error) {
	card, err := c.of(m)
	if err != nil {
		return nil, err
	}
	return card.Memory.Export(m)
}

// Import implements keys.Backend. The first card that takes the file has the
// key, and wants its PIN.
func (c *MemoryCards) Import(ctx context.Context, t keys.Template, file []byte, allowImported bool) (keys.Material, error) {
	_, err := c.present(0)
	if fault.KindOf(err) == fault.DeviceAbsent {
		return keys.Material{}, err
	}
	err = &fault.Error{Kind: fault.KeyMismatch, Message: "the key is on none of the cards"}
	for _, card := range c.there() {
		m, failed := card.Memory.Import(ctx, t, file, allowImported)
		if failed == nil {
			return m, card.opened(keys.Template{PIN: t.PIN, Card: keys.OnCard{PIN: t.Card.PIN}})
		}
		err = failed
	}
	return keys.Material{}, err
}

// there lists the cards that are in a reader.
func (c *MemoryCards) there() []*memoryCard {
	var list []*memoryCard
	c.each(func(card *memoryCard) {
		if !card.gone {
			list = append(list, card)
		}
	})
	return list
}
