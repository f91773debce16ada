package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"holdfast/internal/fault"
)

// The rate limits of wrong PINs that the agent passes on to a device. A device that
// sees too many locks for every user.
const (
	MaxPINTries       = 2 // of one uid on one key
	MaxPINTriesPerUID = 5 // of one uid on all its keys, present and past
	PINWindow         = time.Hour
)

// triesOf names one uid's tries of the PIN of one key, by the key itself rather than
// by its name, so that deleting, renaming or adopting it gives no fresh tries.
func triesOf(owner uint32, what []byte) string {
	sum := sha256.Sum256(what)
	return triesOfUID(owner) + "/" + hex.EncodeToString(sum[:])[:32]
}

// triesOfUID names all of one uid's tries.
func triesOfUID(owner uint32) string { return strconv.FormatUint(uint64(owner), 10) }

// SpendPINTry counts one try of a PIN by owner and returns when that is on the
// disk: call it before the device sees the PIN. The argument what identifies the
// object that has the PIN for as long as it exists, such as a key's public area; it
// need not be in the store. SpendPINTry returns a pin-blocked [fault.Error], and counts
// nothing, when [MaxPINTries] of it or [MaxPINTriesPerUID] of the uid were spent
// within [PINWindow]; any other error forbids the try as well.
func (s *Store) SpendPINTry(owner uint32, what []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.ledgerFault != nil {
		return fmt.Errorf("count the PIN's tries: %w", s.ledgerFault)
	}
	now, key, uid := s.now().UTC(), triesOf(owner, what), triesOfUID(owner)
	// Stored as they count now: a time in the future would count again each time.
	s.setTries(key, recent(s.ledger.PINTries[key], now))
	s.setTries(uid, recent(s.ledger.PINTries[uid], now))
	ofKey, ofUID := s.ledger.PINTries[key], s.ledger.PINTries[uid]
	wait := max(untilFewer(ofKey, MaxPINTries, now), untilFewer(ofUID, MaxPINTriesPerUID, now))
	if wait > 0 {
		return &fault.Error{
			Kind:       fault.PINBlocked,
			Message:    fmt.Sprintf("%d wrong PINs for this key and %d for all of uid %d's keys within an hour", len(ofKey), len(ofUID), owner),
			Hint:       "wait, so that the device does not lock",
			RetryAfter: wait,
		}
	}
	return s.changeTries(owner, what, append(slices.Clone(ofKey), now), append(slices.Clone(ofUID), now))
}

// untilFewer returns how long it takes until fewer than limit tries count; 0 when
// fewer count now.
func untilFewer(tries []time.Time, limit int, now time.Time) time.Duration {
	if len(tries) < limit {
		return 0
	}
	return tries[len(tries)-limit].Add(PINWindow).Sub(now)
}

// ReturnPINTry removes the newest try, because the device never saw the PIN.
func (s *Store) ReturnPINTry(owner uint32, what []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	spent := s.ledger.PINTries[triesOf(owner, what)]
	if len(spent) == 0 {
		return nil
	}
	return s.changeTries(owner, what, shorter(spent), shorter(s.ledger.PINTries[triesOfUID(owner)]))
}

// ClearPINTries removes the tries of one PIN, because the newest was right. Of the
// uid's tries it removes that one only: otherwise a PIN that the uid knows would
// allow any number of tries of other PINs.
func (s *Store) ClearPINTries(owner uint32, what []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if len(s.ledger.PINTries[triesOf(owner, what)]) == 0 {
		return nil
	}
	return s.changeTries(owner, what, nil, shorter(s.ledger.PINTries[triesOfUID(owner)]))
}

// shorter returns all but the newest.
func shorter(tries []time.Time) []time.Time { return tries[:max(0, len(tries)-1)] }

// changeTries writes the tries of a key and of its uid, or changes neither.
func (s *Store) changeTries(owner uint32, what []byte, ofKey, ofUID []time.Time) error {
	key, uid := triesOf(owner, what), triesOfUID(owner)
	oldKey, oldUID := s.ledger.PINTries[key], s.ledger.PINTries[uid]
	s.setTries(key, ofKey)
	s.setTries(uid, ofUID)
	if err := s.writeLedger(); err != nil {
		s.setTries(key, oldKey)
		s.setTries(uid, oldUID)
		return fmt.Errorf("count the PIN's tries: %w", err)
	}
	return nil
}

func (s *Store) setTries(name string, tries []time.Time) {
	if len(tries) == 0 {
		delete(s.ledger.PINTries, name)
	} else {
		s.ledger.PINTries[name] = tries
	}
}

// PINTriesLeft returns how many more tries of one PIN [Store.SpendPINTry] allows
// owner now.
func (s *Store) PINTriesLeft(owner uint32, what []byte) int {
	s.writing.Lock()
	defer s.writing.Unlock()
	now := s.now()
	ofKey := len(recent(s.ledger.PINTries[triesOf(owner, what)], now))
	ofUID := len(recent(s.ledger.PINTries[triesOfUID(owner)], now))
	return max(0, min(MaxPINTries-ofKey, MaxPINTriesPerUID-ofUID))
}

// recent returns the tries that still count. A try in the future was made before the
// clock was set back; it counts from now, since it would otherwise not expire in
// time.
func recent(tries []time.Time, now time.Time) []time.Time {
	var still []time.Time
	for _, t := range tries {
		if t.After(now) {
			t = now
		}
		if now.Sub(t) < PINWindow {
			still = append(still, t)
		}
	}
	return still
}
