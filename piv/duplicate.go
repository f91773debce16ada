package piv

import (
	"errors"
	"fmt"
	"strings"

	"holdfast/internal/fault"
)

// errDuplicate marks two cards that report the same serial number.
var errDuplicate = errors.New("two cards have one serial number")

// claiming lists the readers whose cards report the serial number, or any for 0. s.mu
// is held.
func (s *scanner) claiming(serial uint32) []*reader {
	var list []*reader
	for _, r := range s.byName() {
		if r.serial != 0 && (serial == 0 || r.serial == serial) {
			list = append(list, r)
		}
	}
	return list
}

// duplicate returns an error when more than one card reports the serial number: at most
// one report is true, and the other card must not see a PIN. s.mu is held.
func (s *scanner) duplicate(serial uint32) *fault.Error {
	all := s.claiming(serial)
	if len(all) < 2 {
		return nil
	}
	var names []string
	for _, r := range all {
		names = append(names, quoted(r.name))
	}
	return &fault.Error{Kind: fault.KeyMismatch, Err: errDuplicate, Hint: "take one of them out",
		Message: fmt.Sprintf("the cards in the readers %s both claim to be card %d", strings.Join(names, " and "), serial)}
}

// workers lists the workers that may keep a PIN of the card with the serial number,
// or of any card for 0.
func (s *scanner) workers(serial uint32) []*worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*worker
	for _, r := range s.claiming(serial) {
		list = append(list, r.worker)
	}
	return list
}
