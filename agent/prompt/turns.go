package prompt

import (
	"context"
	"sync"
)

// turns serialises the prompts in each place. A waiting prompt holds no lock.
type turns struct {
	mu     sync.Mutex
	places map[string]*turn // guarded by mu
}

// A turn is one place that is used or waited for.
type turn struct {
	free chan struct{} // holds one token while the place is free
	uses int           // prompts that use the place or wait for it, guarded by turns.mu
}

// take waits for the place and returns a function that gives it back. It fails when
// ctx ends first.
func (t *turns) take(ctx context.Context, place string) (give func(), err error) {
	one := t.join(place)
	select {
	case <-one.free:
		return func() {
			one.free <- struct{}{}
			t.leave(place, one)
		}, nil
	case <-ctx.Done():
		t.leave(place, one)
		return nil, context.Cause(ctx)
	}
}

func (t *turns) join(place string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.places == nil {
		t.places = map[string]*turn{}
	}
	one, found := t.places[place]
	if !found {
		one = &turn{free: make(chan struct{}, 1)}
		one.free <- struct{}{}
		t.places[place] = one
	}
	one.uses++
	return one
}

func (t *turns) leave(place string, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.uses--; one.uses == 0 {
		delete(t.places, place)
	}
}
