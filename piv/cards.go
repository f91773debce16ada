package piv

import (
	"context"
	"slices"
	"sync"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
)

// Cards inspects all cards concurrently, and reports why the card in a reader could
// not be identified. No card is not an error.
func (p *PIV) Cards(ctx context.Context) ([]keys.Card, error) {
	if err := p.scanner.settle(ctx); err != nil {
		return nil, err
	}
	known, others, err := p.scanner.inventory()
	if err != nil {
		return nil, err
	}
	list := make([]keys.Card, len(known))
	var all sync.WaitGroup
	for i, c := range known {
		all.Go(func() { list[i] = p.inspect(ctx, c) })
	}
	all.Wait()
	if slices.ContainsFunc(list, isAbsent) {
		return p.withoutGone(ctx, append(list, others...))
	}
	return append(list, others...), nil
}

func isAbsent(c keys.Card) bool { return c.State == keys.StateAbsent }

// withoutGone drops the cards that were removed while they were inspected. It waits up
// to a second for the scanner to notice them, which also notices the end of pcscd.
func (p *PIV) withoutGone(ctx context.Context, list []keys.Card) ([]keys.Card, error) {
	notices := time.NewTicker(10 * time.Millisecond)
	defer notices.Stop()
	late := time.After(time.Second)
	for {
		known, _, err := p.scanner.inventory()
		if err != nil {
			return nil, err
		}
		still := func(c keys.Card) bool {
			return isAbsent(c) && slices.ContainsFunc(known, func(k card) bool { return k.serial == c.Serial })
		}
		if !slices.ContainsFunc(list, still) {
			return slices.DeleteFunc(list, func(c keys.Card) bool { return isAbsent(c) && c.Serial != 0 }), nil
		}
		select {
		case <-notices.C:
		case <-late:
			return list, nil
		case <-ctx.Done():
			return list, nil
		}
	}
}

// inventory lists the identified cards, and reports on the others.
func (s *scanner) inventory() (known []card, others []keys.Card, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		return nil, nil, s.fault
	}
	for _, r := range s.identifiedCards() {
		e := s.duplicate(r.serial)
		if e == nil {
			known = append(known, r.card())
			continue
		}
		others = append(others, keys.Card{Serial: r.serial, Reader: r.name, Firmware: r.firmware, State: keys.StateFailed, Reason: e.Message, Hint: e.Hint, Next: e.Next})
	}
	for _, r := range s.byName() {
		if r.fault == nil {
			continue
		}
		c := keys.Card{Reader: r.name, State: stateOf(r.fault), Reason: r.fault.Message, Hint: r.fault.Hint, Next: r.fault.Next}
		others = append(others, noted(c))
	}
	return known, others, nil
}

// inspect reads the state of one card.
func (p *PIV) inspect(ctx context.Context, c card) keys.Card {
	reply, _, err := c.worker.ask(ctx, c.serial, wire.Request{Op: wire.Inspect}, p.inspecting())
	if err == nil && reply.Card == nil {
		err = incomplete("the card's state")
	}
	if err != nil {
		e, _ := fault.AsError(err)
		failed := keys.Card{Serial: c.serial, Reader: c.reader, Firmware: c.firmware, State: stateOf(e), Reason: e.Message, Hint: e.Hint, Next: e.Next}
		if failed.State == "" {
			failed.State = keys.StateFailed
		}
		return noted(failed)
	}
	found := *reply.Card
	found.Serial, found.Reader, found.Firmware, found.State = c.serial, c.reader, c.firmware, keys.StateReady
	if e := spent(c.serial, found.PINTries, found.PUKTries); e != nil {
		found.State, found.Reason, found.Hint, found.Next = keys.StateLocked, e.Message, e.Hint, e.Next
	}
	unproven := p.attests(c, reply.Attester)
	attests := unproven == nil
	found.Attests = &attests
	c.worker.learn(found.PINTries, nil)
	return noteProof(noted(found), unproven)
}

// inspecting returns the options of a request that reads each slot and its
// certificate.
func (p *PIV) inspecting() callOptions {
	return callOptions{limit: p.config.limits.inspect, grace: p.config.limits.grace, repeat: true}
}
