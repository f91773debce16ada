package card

import (
	"bytes"
	"fmt"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/holdfast-piv/vault"
	"holdfast/piv/wire"
)

// pinSize is a PIN's or PUK's size on its way to the card, padded with ff (NIST
// SP 800-73-4, part 2, section 2.4.3).
const pinSize = 8

// padded returns the concatenated secrets, each in the card's form.
func padded(secrets ...[]byte) []byte {
	all := bytes.Repeat([]byte{0xff}, pinSize*len(secrets))
	for i, secret := range secrets {
		copy(all[pinSize*i:pinSize*(i+1)], secret)
	}
	return all
}

// unlock proves the PIN and keeps it for one key.
func (s *Session) unlock(r *wire.Request, _ *wire.Reply) error {
	if err := keys.CheckCardPIN(r.PIN); err != nil {
		return err
	}
	epoch := s.vault.Epoch(r.Slot)
	if err := s.prove(r.Slot, r.Public); err != nil {
		return err
	}
	if err := s.verify(r.PIN); err != nil {
		return err
	}
	switch {
	case s.vault.Keep(vault.KeyOf(r.Slot, r.Public), r.PIN, r.Until, epoch):
		return nil
	case s.vault.Epoch(r.Slot) != epoch:
		return &wire.Error{Kind: fault.Busy, Message: "the key was locked while it was being unlocked", Hint: "unlock it again", Shut: true}
	}
	return &fault.Error{Kind: fault.BadRequest, Message: "the time to unlock the key for is over"}
}

// verify proves a PIN that may be wrong. A wrong PIN spends a try, but never the last.
func (s *Session) verify(pin []byte) error {
	if err := s.spare(refPIN); err != nil {
		return err
	}
	return s.login(pin)
}

// login sends VERIFY. When the card refuses it, the PIN that is kept is dropped.
func (s *Session) login(pin []byte) error {
	data := padded(pin)
	defer clear(data)
	s.sent, s.presented, s.verified, s.counted = true, true, false, false
	_, err := send(s.raw, insVerify, 0, refPIN, data)
	if err != nil {
		return s.refused(refPIN, err)
	}
	s.verified, s.counted = true, true
	delete(s.refusals, refPIN)
	return nil
}

// refused translates the error of a wrong PIN or PUK, and drops the PIN that is kept
// when it was the PIN.
func (s *Session) refused(ref byte, err error) error {
	status, ok := statusOf(err)
	if !ok {
		return err
	}
	tries := -1
	switch {
	case status == statusBlocked:
		tries = 0
	case status>>8 == 0x63: // old firmware answers 630x instead of 63cx
		tries = int(status & 0xf)
	default:
		return err
	}
	if ref == refPIN {
		s.vault.Lock("")
	}
	s.refusals[ref] = tries
	return s.wrong(ref, tries)
}

// names are the names of PIN and PUK in messages.
var names = map[byte]string{refPIN: "PIN", refPUK: "PUK"}

// wrong is the error for a wrong PIN or PUK, with the tries left.
func (s *Session) wrong(ref byte, tries int) error {
	e := &wire.Error{Kind: fault.PINRequired, Tries: &tries,
		Message: fmt.Sprintf("this is not the %s of card %d; %d tries are left", names[ref], s.serial, tries)}
	if tries == 1 {
		e.Message = fmt.Sprintf("this is not the %s of card %d; one try is left, and holdfast never uses the last one", names[ref], s.serial)
	}
	if tries <= 1 {
		e.Hint, e.Next = s.wayOut(ref)
	}
	if tries == 0 {
		e.Kind, e.Message = fault.PINBlocked, fmt.Sprintf("the %s of card %d is blocked", names[ref], s.serial)
	}
	return e
}

// wayOut returns the next step when no try of a PIN or PUK may be spent.
func (s *Session) wayOut(ref byte) (hint string, next fault.Next) {
	if ref == refPUK {
		return "without its PUK a card can only be reset, and loses its keys: ykman piv reset", fault.Next{}
	}
	return "", fault.Next{Do: fault.Unblock, Card: s.serial}
}

// spare returns a pin-blocked error unless a try would be left after a wrong PIN or
// PUK.
func (s *Session) spare(ref byte) error {
	tries, err := s.tries(ref)
	if err != nil || tries == nil || *tries > 1 {
		s.counted = s.counted || err == nil && ref == refPIN
		return err
	}
	e := &wire.Error{Kind: fault.PINBlocked, Tries: tries,
		Message: fmt.Sprintf("the %s of card %d has one try left, and holdfast never uses the last one", names[ref], s.serial)}
	e.Hint, e.Next = s.wayOut(ref)
	if *tries == 0 {
		e.Message = fmt.Sprintf("the %s of card %d is blocked", names[ref], s.serial)
	}
	return e
}

// tries returns how many tries are left, or nil when the card does not report it: before
// firmware 5.3 it does not report the PUK's, nor the PIN's while the PIN is verified, when
// all are left. Where the card contradicts itself, the lowest number counts.
func (s *Session) tries(ref byte) (*int, error) {
	var left *int
	if last, ok := s.refusals[ref]; ok {
		left = &last
	}
	if s.since(5, 3, 0) {
		m, err := metadataOf(s.raw, ref)
		if err != nil {
			return nil, err
		}
		left = least(left, m.tries)
	}
	if ref != refPIN || s.verified { // firmware 5.3.1 forgets the PIN when it is asked
		return left, nil
	}
	asked, err := s.askTries()
	if _, odd := statusOf(err); odd && left != nil {
		err = nil
	}
	return least(left, asked), err
}

func least(a, b *int) *int {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}

// askTries returns how many tries of the PIN are left by an empty VERIFY, or nil when the
// PIN is verified.
func (s *Session) askTries() (*int, error) {
	_, err := send(s.raw, insVerify, 0, refPIN, nil)
	status, ok := statusOf(err)
	tries := int(status & 0xf)
	switch {
	case err == nil:
		return nil, nil
	case ok && status == statusBlocked:
		tries = 0
	case !ok || status>>8 != 0x63:
		return nil, err
	}
	return &tries, nil
}
