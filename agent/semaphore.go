package agent

import "context"

// semaphore admits as many holders at once as it has capacity.
type semaphore chan struct{}

// acquire waits until there is room, or returns why ctx ended. After nil, the caller
// calls release.
func (s semaphore) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s semaphore) release() { <-s }
