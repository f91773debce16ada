package keyring

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// callTimeout is how long a call may take.
const callTimeout = 5 * time.Second

// grace is how long a call may take to notice that its context has ended. Most
// calls do: the end of ctx closes the connection that they wait for.
const grace = 100 * time.Millisecond

// errMalformed is for answers that go-keyring panics on.
var errMalformed = errors.New("the keyring's answer is malformed")

// guard runs one call at a time, each on a goroutine of its own. It abandons a call
// that outlives its deadline; until that call returns, further callers get an error
// at once, so that there is never more than one such goroutine.
type guard struct {
	turn chan struct{} // holds one element while a call runs

	mu      sync.Mutex
	running *call
}

type call struct {
	abandoned bool // its caller no longer waits; guarded by guard.mu
}

type answer struct {
	value []byte
	err   error
}

func newGuard() guard { return guard{turn: make(chan struct{}, 1)} }

// do runs f and returns its result, or ErrTimeout when f takes longer than ctx and
// callTimeout allow.
func (g *guard) do(ctx context.Context, f func(context.Context) ([]byte, error)) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := g.enter(ctx)
	if err != nil {
		return nil, err
	}
	answers := make(chan answer, 1)
	go func() {
		defer g.leave()
		value, err := recovering(ctx, f)
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.settle(ctx)
	case <-ctx.Done():
	}
	select {
	case a := <-answers:
		return a.settle(ctx)
	case <-time.After(grace):
		g.abandon(c)
		return nil, timedOut(ctx)
	}
}

// settle returns the answer, or ErrTimeout when the end of ctx made it an error.
func (a answer) settle(ctx context.Context) ([]byte, error) {
	if a.err != nil && ctx.Err() != nil {
		return nil, timedOut(ctx)
	}
	return a.value, a.err
}

// enter waits for the previous call, unless that one was abandoned.
func (g *guard) enter(ctx context.Context) (*call, error) {
	g.mu.Lock()
	hangs := g.running != nil && g.running.abandoned
	g.mu.Unlock()
	if hangs {
		return nil, ErrTimeout
	}
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, timedOut(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = &call{}
	return g.running, nil
}

func (g *guard) leave() {
	g.mu.Lock()
	g.running = nil
	g.mu.Unlock()
	<-g.turn
}

func (g *guard) abandon(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.abandoned = true
}

// recovering calls f, which may panic: go-keyring does not check answers from the bus.
func recovering(ctx context.Context, f func(context.Context) ([]byte, error)) (value []byte, err error) {
	defer func() {
		if recover() != nil { // its text may hold a secret
			value, err = nil, errMalformed
		}
	}()
	return f(ctx)
}

func timedOut(ctx context.Context) error { return fmt.Errorf("%w: %w", ErrTimeout, ctx.Err()) }
