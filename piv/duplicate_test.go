package piv_test

import (
	"errors"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/pivcard"
)

// TestTwins: of two cards that say that they are the same neither is used, nor
// shown a PIN, and what was unlocked on the first is locked by a Lock.
func TestTwins(t *testing.T) {
	rig, b, cards := start(t, 2, 1)
	m := create(t, b, keys.OnCard{Serial: 1, PINPolicy: keys.PolicyOnce})
	unlock(t, b, m)
	rig.Remove(cards[0])
	cards[1].Forget()
	twin := rig.NewCard(pivcard.Options{Serial: 1})
	rig.Insert(twin) // into the first reader: it is looked at first
	within(t, "both seen", recovery, func() error {
		if err := sign(soon(t), b, m); err == nil || fault.KindOf(err) != fault.KeyMismatch {
			return errors.Join(errors.New("not refused"), err)
		}
		return nil
	})
	wantError(t, "sign", sign(soon(t), b, m), fault.KeyMismatch, rig.ReaderOf(twin), rig.ReaderOf(cards[1]), "take one of them out")
	pin, until := []byte(rightPIN), time.Now().Add(time.Hour)
	wantError(t, "unlock", b.Unlock(soon(t), m, pin, until), fault.KeyMismatch, "both claim to be card 1")
	wantError(t, "unblock", b.Unblock(soon(t), 1, []byte(rightPUK), pin), fault.KeyMismatch, "both claim")
	_, err := b.Create(soon(t), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, Card: keys.OnCard{PIN: pin}})
	wantError(t, "create on the only card", err, fault.KeyMismatch, "both claim")
	if n := twin.PINTries() + twin.Count(pivcard.ResetRetry) + twin.Count(pivcard.Authenticate); n != 0 {
		t.Errorf("a card that is one of two was sent %d commands with secrets", n)
	}
	if s := b.Status(soon(t)); len(s.Units) != 1 || s.Units[0].State != keys.StateFailed || s.Units[0].Hint == "" {
		t.Errorf("status: %+v", s.Units)
	}
	if list, err := b.Cards(soon(t)); err != nil || len(list) != 1 || list[0].State != keys.StateFailed || list[0].Reason == "" {
		t.Errorf("cards: %+v, %v", list, err)
	}
	b.Lock(&m)
	rig.Remove(twin)
	within(t, "one left", recovery, func() error { return b.Check(soon(t), m) })
	wantError(t, "locked meanwhile", sign(soon(t), b, m), fault.PINRequired)
}
