package piv_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv"
	"holdfast/test/pace"
	"holdfast/test/pivcard"
)

// brisk starts a rig with card 1, and a backend on it with these limits.
func brisk(t *testing.T, operation, identify, grace time.Duration) (*pivcard.Rig, *piv.PIV, []*pivcard.Card) {
	rig, b, cards := start(t, 1)
	b.Close()
	c := config(t, rig)
	c.Limits(operation, identify, grace)
	return rig, openPIV(t, c), cards
}

// TestForeignTransaction: another program's transaction that lasts longer than a request
// makes the card busy. It costs no unlocked key its PIN, also when the caller leaves.
func TestForeignTransaction(t *testing.T) {
	rig, b, cards := brisk(t, 2*time.Second, 2*time.Second, 100*time.Millisecond)
	m := create(t, b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	unlock(t, b, m)
	before := b.Workers()
	reader := rig.ReaderOf(cards[0])
	waitUntil(t, func() bool { return !cards[0].Verified() })
	release := rig.Lock(t, reader)
	wantError(t, "in use", sign(soon(t), b, m), fault.Busy, "another program is working with the card", "try again")
	if s := b.Status(soon(t)); len(s.Units) != 1 || s.Units[0].State != keys.StateBusy {
		t.Errorf("status: %+v, want a card that is busy", s)
	}
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantError(t, "the caller leaves", sign(brief, b, m), fault.Deadline)
	signed := make(chan error)
	go func() { signed <- sign(soon(t), b, m) }()
	release()
	if err := <-signed; err != nil {
		t.Errorf("after the transaction: %v", err)
	}
	if after := b.Workers(); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("children %v, then %v", before, after)
	}
	release = rig.Lock(t, reader)
	late := openPIV(t, config(t, rig)) // finds a card that it cannot identify
	wantError(t, "in use from the start", late.Check(soon(t), m), fault.Busy, "another program is working with the card")
	release()
	within(t, "free", recovery, func() error { return late.Check(soon(t), m) })
}

// TestHungCardIsNotInUse: the command of a child that was killed is not reported as
// another program's work.
func TestHungCardIsNotInUse(t *testing.T) {
	rig, b, cards := brisk(t, time.Second, time.Second, 100*time.Millisecond)
	m := create(t, b, keys.OnCard{PINPolicy: keys.PolicyNever})
	cards[0].Order(pivcard.Hang().At(pivcard.Authenticate))
	wantError(t, "the card hangs", sign(soon(t), b, m), fault.Deadline, "take the card out")
	for range 2 {
		begun := time.Now()
		wantError(t, "it still hangs", sign(soon(t), b, m), fault.DeviceWedged, "does not answer", "take the card out")
		if took := time.Since(begun); pace.Over(t, took, 2*time.Second) {
			t.Errorf("it took %v to say so", took)
		}
	}
	if s := b.Status(soon(t)); len(s.Units) != 1 || s.Units[0].State != keys.StateWedged {
		t.Errorf("status: %+v, want a card that is wedged", s)
	}
	late := openPIV(t, config(t, rig))
	if kind := fault.KindOf(late.Check(soon(t), m)); kind != fault.Busy { // it cannot know
		t.Errorf("another agent: %v", kind)
	}
	cards[0].Mend()
	within(t, "it answers again", recovery, func() error { return sign(soon(t), b, m) })
}
