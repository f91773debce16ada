package faults_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/varlink"
	"holdfast/test/daemon"
)

// A load keeps an agent signing with a few workers and keeps the account.
type load struct {
	mu       sync.Mutex
	good     int
	bad      map[string]int // kind of failure -> how many
	lastGood time.Time      // when the latest signature that came was asked for
	wrong    []error        // signatures that do not verify, and failures without a name

	stop func()
	done sync.WaitGroup
}

// lost is the name here for a connection that the agent closed.
const lost = "connection lost"

// startLoad signs with key k from workers goroutines, each call within limit.
func startLoad(t *testing.T, a *daemon.Agent, k agentwire.Key, workers int, limit time.Duration) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{bad: map[string]int{}, stop: cancel}
	t.Cleanup(l.end)
	for range workers {
		c := connect(t, a)
		key, err := c.Key(within(t, limit), k.Name)
		if err != nil {
			t.Fatal(err)
		}
		l.done.Go(func() { l.work(ctx, key, k, limit) })
	}
	return l
}

func (l *load) work(ctx context.Context, key *client.Key, k agentwire.Key, limit time.Duration) {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, limit)
		asked := time.Now()
		err := signWith(call, key, k)
		cancel()
		if ctx.Err() == nil {
			l.note(asked, err)
		}
		if err != nil {
			time.Sleep(time.Millisecond) // a caller that is refused at once must not spin
		}
	}
}

func (l *load) note(asked time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name, ok := nameOf(err)
	switch {
	case err == nil:
		l.good++
		if asked.After(l.lastGood) {
			l.lastGood = asked
		}
	case !ok:
		l.wrong = append(l.wrong, err)
	default:
		l.bad[name]++
	}
}

// nameOf returns the name of a failure, and false for one that has none: a
// caller could not act on it.
func nameOf(err error) (string, bool) {
	var unreachable *client.UnreachableError
	if e, ok := fault.AsError(err); ok {
		return string(e.Kind), e.Kind != fault.Internal && e.Kind != fault.KeyMismatch
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return string(fault.Deadline), true
	case errors.Is(err, varlink.ErrConnectionLost), errors.As(err, &unreachable):
		return lost, true
	}
	return "", err == nil
}

// end stops the workers and waits for them.
func (l *load) end() {
	l.stop()
	l.done.Wait()
}

// signedSince reports whether a signature came that was asked for after the given
// moment. One that was on its way then says nothing about now.
func (l *load) signedSince(when time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastGood.After(when)
}

// total returns how many signatures came.
func (l *load) total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.good
}

// seen reports whether there was a failure of the kind.
func (l *load) seen(kind fault.Kind) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bad[string(kind)] > 0
}

// check ends the load and holds its failures to the given names.
func (l *load) check(t *testing.T, allowed ...string) {
	t.Helper()
	l.end()
	for _, err := range l.wrong[:min(len(l.wrong), 3)] {
		t.Errorf("%d failures without a name or with a wrong signature, such as %v", len(l.wrong), err)
	}
	for name, n := range l.bad {
		if !slices.Contains(allowed, name) {
			t.Errorf("%d failures named %s, want only %v", n, name, allowed)
		}
	}
}

// account is what a test prints.
func (l *load) account() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for name, n := range l.bad {
		names = append(names, fmt.Sprintf("%d %s", n, name))
	}
	slices.Sort(names)
	return fmt.Sprintf("%d signatures, failures: %s", l.good, strings.Join(append(names, "0 others"), ", "))
}
