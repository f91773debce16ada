// Package pace says how much and how fast a test may be on the machine at hand.
//
// A test that repeats something at random takes [Share]: a small share of the
// repetitions in `make test`, all of them in `make soak`. A test that measures
// time compares with [Slowest] of what it measured itself on the same machine in
// the same run, since a machine with other work to do is slow at everything.
package pace

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// Variable is the environment variable that `make soak` sets to 1.
const Variable = "HOLDFAST_SOAK"

// Share returns full in `make soak`, and share elsewhere.
func Share[T any](share, full T) T {
	if os.Getenv(Variable) == "1" {
		return full
	}
	return share
}

// Slowest calls f n times and returns how long the slowest call took. A call that
// fails ends the test.
func Slowest(tb testing.TB, n int, f func() error) (slowest time.Duration) {
	tb.Helper()
	for range n {
		begun := time.Now()
		if err := f(); err != nil {
			tb.Fatalf("while the pace of this machine was measured: %v", err)
		}
		slowest = max(slowest, time.Since(begun))
	}
	return slowest
}

// Over reports whether something took longer than limit, which holds for a machine
// with nothing else to do. On another machine the limit has slack: many times what
// starting a program takes there at the moment.
func Over(tb testing.TB, took, limit time.Duration) bool {
	tb.Helper()
	if took <= limit {
		return false
	}
	usual := Slowest(tb, 5, func() error { return exec.Command("/bin/true").Run() })
	tb.Logf("it took %v, over %v; here and now starting a program takes %v", took, limit, usual)
	return took > limit+20*usual
}
