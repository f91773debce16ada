package piv

import (
	"context"
	"fmt"
	"time"

	"holdfast/internal/fault"
)

// takeTurn waits until the requests before this one are answered. It does not wait
// for the touch of an abandoned request.
func (k *keeper) takeTurn(ctx context.Context, serial uint32) error {
	if ctx.Err() != nil { // select would choose at random
		return tooLate(ctx)
	}
	select {
	case k.turn <- struct{}{}:
		return nil
	default:
	}
	if err := k.pendingTouch(serial); err != nil {
		return err
	}
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
	}
	if err := k.pendingTouch(serial); err != nil {
		return err
	}
	return tooLate(ctx)
}

// noteTouch records until when, at most, the card waits for the touch of a request whose
// caller has left, unless the request is done. Only the end of the child would cancel
// that wait, and would lock every key of the card.
func (k *keeper) noteTouch(done <-chan struct{}, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-done:
	default:
		k.touch = until
	}
}

// settle records that the request in flight is done.
func (k *keeper) settle(done chan<- struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.touch = time.Time{}
	close(done)
}

// pendingTouch returns a busy error while the card waits for such a touch.
func (k *keeper) pendingTouch(serial uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.touch.IsZero() {
		return nil
	}
	return &fault.Error{Kind: fault.Busy, RetryAfter: max(time.Until(k.touch), time.Millisecond).Round(time.Millisecond),
		Message: fmt.Sprintf("card %d still waits for the touch of an abandoned request", serial), Hint: "touch it, or wait 15 seconds"}
}
