package piv

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/fault"
)

// unitOf is the name of a card as a unit: see keys.Divided.
func unitOf(serial uint32) string { return strconv.FormatUint(uint64(serial), 10) }

func quoted(reader string) string { return fmt.Sprintf("%.60q", reader) }

// insertion is how long a card may be in its reader before the scanner sees it. A
// caller that asks directly after the insertion waits for it.
const insertion = 300 * time.Millisecond

// find returns the card with a serial number, or for serial 0 the only card. It waits
// while a new card is being identified, and briefly for one that may just have been
// inserted. It retries once when pcscd did not run or another program held a card.
func (s *scanner) find(ctx context.Context, serial uint32) (card, error) {
	if err := s.start(); err != nil {
		return card{}, err
	}
	var newcomer <-chan time.Time
	for again, late := true, false; ; {
		s.mu.Lock()
		found, err := s.choose(serial)
		wait := s.unsettled()
		if err != nil && !wait && again {
			wait, again = s.lookAgain(), false
		}
		absent := err != nil && s.fault == nil && s.obstacle() == nil
		changed := s.changed
		s.mu.Unlock()
		if !wait && absent && newcomer == nil {
			newcomer = time.After(insertion)
		}
		if err == nil || !wait && (!absent || late) {
			return found, err
		}
		select {
		case <-changed:
		case <-newcomer:
			late = true
		case <-ctx.Done():
			return card{}, tooLate(ctx)
		case <-s.ctx.Done():
			return card{}, errClosed()
		}
	}
}

// settle waits for the identifications in progress.
func (s *scanner) settle(ctx context.Context) error {
	if err := s.start(); err != nil {
		return err
	}
	for again := true; ; again = false {
		s.mu.Lock()
		wait := s.unsettled() || again && s.lookAgain()
		changed := s.changed
		s.mu.Unlock()
		if !wait {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return tooLate(ctx)
		case <-s.ctx.Done():
			return errClosed()
		}
	}
}

// unsettled reports whether an identification that callers wait for is in progress.
// s.mu is held.
func (s *scanner) unsettled() bool {
	wait := !s.looked
	for _, r := range s.readers {
		wait = wait || r.looking && r.awaited
	}
	return wait
}

// lookAgain starts the retries that may succeed now, and reports whether there are
// any. s.mu is held.
func (s *scanner) lookAgain() bool {
	if s.fault != nil {
		s.looked = false
		select {
		case s.kick <- struct{}{}:
		default:
		}
		return true
	}
	found := false
	for _, r := range s.readers {
		if r.fault != nil && r.fault.Kind == fault.Busy && s.retry(r) {
			r.awaited, found = true, true
		}
	}
	return found
}

// choose returns the requested card, or the reason why there is none. s.mu is held.
func (s *scanner) choose(serial uint32) (card, error) {
	there := s.identifiedCards()
	for _, r := range there {
		if r.serial != serial && (serial != 0 || len(there) > 1) {
			continue
		}
		if e := s.duplicate(r.serial); e != nil {
			return card{}, e
		}
		return r.card(), nil
	}
	if s.fault != nil {
		return card{}, s.fault
	}
	if serial == 0 && len(there) > 0 {
		return card{}, &fault.Error{Kind: fault.BadRequest, Message: "there is more than one card: " + serials(there), Hint: "name one: --card SERIAL"}
	}
	if e := s.obstacle(); e != nil && (len(there) == 0 || e.Kind != fault.DeviceAbsent) {
		return card{}, e
	}
	return card{}, s.missing(serial, there)
}

// missing is the error for a card that is in no reader. s.mu is held.
func (s *scanner) missing(serial uint32, there []*reader) error {
	insert := fault.Next{Do: fault.InsertCard, Card: serial}
	switch {
	case len(there) == 1:
		return &fault.Error{Kind: fault.KeyMismatch, Message: fmt.Sprintf("the key is on card %d, in the reader is card %d", serial, there[0].serial), Next: insert}
	case len(there) > 1:
		return &fault.Error{Kind: fault.KeyMismatch, Message: fmt.Sprintf("the key is on card %d, in the readers are cards %s", serial, serials(there)), Next: insert}
	case len(s.readers) == 0:
		return &fault.Error{Kind: fault.DeviceAbsent, Message: "there is no card reader", Next: insert}
	}
	return &fault.Error{Kind: fault.DeviceAbsent, Message: "there is no card in the reader", Next: insert}
}

// obstacle returns why some card could not be identified, temporary reasons first.
// s.mu is held.
func (s *scanner) obstacle() *fault.Error {
	var worst *fault.Error
	for _, r := range s.byName() {
		if r.fault != nil && (worst == nil || r.fault.Kind == fault.Busy || worst.Kind == fault.DeviceAbsent) {
			worst = r.fault
		}
	}
	return worst
}

// identifiedCards lists the readers whose cards are known, by serial number, each
// card once. s.mu is held.
func (s *scanner) identifiedCards() []*reader {
	var list []*reader
	for _, r := range s.byName() {
		if r.serial != 0 && !slices.ContainsFunc(list, func(o *reader) bool { return o.serial == r.serial }) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *reader) int { return int(int64(a.serial) - int64(b.serial)) })
	return list
}

// byName lists the readers in a stable order. s.mu is held.
func (s *scanner) byName() []*reader {
	list := make([]*reader, 0, len(s.readers))
	for _, r := range s.readers {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *reader) int { return strings.Compare(a.name, b.name) })
	return list
}

func serials(list []*reader) string {
	var words []string
	for _, r := range list {
		words = append(words, unitOf(r.serial))
	}
	return strings.Join(words, ", ")
}

// A card is a copy of a reader's fields for use without scanner.mu.
type card struct {
	serial   uint32
	firmware string
	reader   string
	worker   *worker
}

func (r *reader) card() card { return card{r.serial, r.firmware, r.name, r.worker} }
