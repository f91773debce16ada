package agent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestSemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := make(semaphore, 1)
		if err := s.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		left, next := make(chan error, 1), make(chan error, 1)
		go func() { left <- s.acquire(ctx) }()
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that left: %v, want canceled", err)
		}
		go func() { next <- s.acquire(t.Context()) }()
		synctest.Wait()
		select {
		case <-next:
			t.Fatal("two holders at once")
		default:
		}
		s.release()
		if err := <-next; err != nil {
			t.Errorf("after the release: %v", err)
		}
	})
}
