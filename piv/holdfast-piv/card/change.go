package card

import (
	"errors"
	"fmt"

	"github.com/go-piv/piv-go/v2/piv"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
)

// changePIN replaces the PIN.
func (s *Session) changePIN(r *wire.Request, _ *wire.Reply) error {
	return s.exchange(refPIN, r.Old, r.New)
}

// changePUK replaces the PUK.
func (s *Session) changePUK(r *wire.Request, _ *wire.Reply) error {
	return s.exchange(refPUK, r.Old, r.New)
}

func (s *Session) exchange(ref byte, old, new []byte) error {
	if err := errors.Join(keys.CheckCardPIN(old), s.acceptable(ref, new)); err != nil {
		return err
	}
	return s.toNew(ref, old, new)
}

// unblock gives the card a new PIN by its PUK.
func (s *Session) unblock(r *wire.Request, _ *wire.Reply) error {
	if err := errors.Join(keys.CheckCardPIN(r.Old), s.acceptable(refPIN, r.New)); err != nil {
		return err
	}
	if err := s.spare(refPUK); err != nil {
		return err
	}
	return s.replace(insResetRetry, refPUK, refPIN, r.Old, r.New)
}

// replace sends a command that proves one secret and replaces it or another one. It
// drops the PIN that is kept.
func (s *Session) replace(ins, proved, target byte, old, new []byte) error {
	data := padded(old, new)
	defer clear(data)
	s.sent, s.presented = true, true
	if target == refPIN {
		s.verified, s.counted = false, false
	}
	_, err := send(s.raw, ins, 0, target, data)
	if status, ok := statusOf(err); ok && (status == statusWrongData || status == statusConditions) {
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("card %d does not take this as its new %s", s.serial, names[target]), Hint: "choose one that is harder to guess"}
	}
	if err != nil {
		return s.refused(proved, err)
	}
	delete(s.refusals, proved)
	delete(s.refusals, target)
	if target == refPIN {
		s.vault.Lock("")
	}
	return nil
}

// factoryValues are the secrets of a new card.
var factoryValues = map[byte]string{refPIN: piv.DefaultPIN, refPUK: piv.DefaultPUK}

// acceptable rejects values that cannot be a PIN or PUK, and the factory's.
func (s *Session) acceptable(ref byte, new []byte) error {
	if err := keys.CheckCardPIN(new); err != nil {
		return err
	}
	if string(new) == factoryValues[ref] {
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("the new %s is the factory default, which is public", names[ref]), Hint: "choose another one"}
	}
	return nil
}
