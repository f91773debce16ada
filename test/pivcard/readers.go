package pivcard

import "errors"

// Insert puts a card into the first free reader, and returns when pcscd has
// seen it there. A card that a fault has removed can be inserted again.
func (r *Rig) Insert(c *Card) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.collect()
	if r.slotOf(c) >= 0 {
		return r.report(errors.New("the card is in a reader"))
	}
	for slot, i := range r.cards {
		if i == nil {
			return r.report(r.insert(c, slot))
		}
	}
	return r.report(errors.New("no reader is free"))
}

func (r *Rig) insert(c *Card, slot int) error {
	if r.proc == nil {
		return errors.New("pcscd is stopped")
	}
	// pcscd looks every 400 ms, and must see the card that was there go: another one
	// that came in between it would take for the same.
	if err := r.awaitGone(slot); err != nil {
		return err
	}
	conn, err := r.proc.dial(slot)
	if err != nil {
		return err
	}
	i := &insertion{card: c, conn: conn, gone: make(chan struct{}), left: make(chan struct{}), done: make(chan struct{})}
	r.cards[slot] = i
	go i.serve()
	return r.await(slot, func(reader readerState) bool {
		r.seen[slot] = reader.Events
		return reader.hasCard()
	})
}

// awaitGone waits until pcscd has seen the card go that was in the slot last. A
// reader without a card is not enough: it also looks so when pcscd wanted to reset
// a card that had gone, and has not noticed that it had.
func (r *Rig) awaitGone(slot int) error {
	return r.await(slot, func(reader readerState) bool { return !reader.hasCard() && reader.Events != r.seen[slot] })
}

// await waits until pcscd sees a reader as ok wants it.
func (r *Rig) await(slot int, ok func(readerState) bool) error {
	return r.proc.until(func(readers []readerState) bool {
		for _, reader := range readers {
			if reader.name() == r.Reader(slot) {
				return ok(reader)
			}
		}
		return false
	})
}

// Remove takes a card out, in the middle of a command if it has one, and
// returns when pcscd has noticed. It does nothing when the card is in no reader.
func (r *Rig) Remove(c *Card) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	slot := r.slotOf(c)
	if slot < 0 {
		return nil
	}
	r.cards[slot].end()
	r.cards[slot] = nil
	if r.proc == nil {
		return nil
	}
	return r.report(r.awaitGone(slot))
}

// slotOf returns where the card is, or -1.
func (r *Rig) slotOf(c *Card) int {
	for slot, i := range r.cards {
		if i != nil && i.card == c {
			return slot
		}
	}
	return -1
}

// noEvents is a count that no reader of a new pcscd has.
const noEvents = ^uint32(0)

// forget is called for a new pcscd, which has seen no card yet.
func (r *Rig) forget() {
	for slot := range r.seen {
		r.seen[slot] = noEvents
	}
}

// collect frees the readers of cards that a fault has removed. Those that were
// in when pcscd was stopped are still in.
func (r *Rig) collect() {
	for slot, i := range r.cards {
		if i != nil && i.fallen() {
			<-i.done
			r.cards[slot] = nil
		}
	}
}

// StopPCSCD kills pcscd: its socket refuses connections, and clients find
// theirs closed. The cards lose their power and stay where they are.
func (r *Rig) StopPCSCD() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop()
}

func (r *Rig) stop() {
	r.collect()
	if r.proc != nil {
		r.proc.kill()
		r.proc = nil
	}
	for _, i := range r.cards {
		if i != nil {
			i.end()
		}
	}
}

// Restart kills pcscd unless it is stopped, starts it again and puts the cards
// into the readers they were in.
func (r *Rig) Restart() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop()
	p, err := launchPCSCD(r.dir, r.slots)
	if err != nil {
		return r.report(err)
	}
	r.proc = p
	r.forget()
	for slot, i := range r.cards {
		if i == nil {
			continue
		}
		if err := r.insert(i.card, slot); err != nil {
			return r.report(err)
		}
	}
	return nil
}
