package agent

import (
	"testing"
	"time"

	"holdfast/internal/fault"
)

func TestRateLimitCountsByWindow(t *testing.T) {
	r := rateLimit{most: 2}
	start := time.Now()
	for i, want := range []struct {
		after  time.Duration
		before int
		within bool
	}{
		{0, 0, true}, {0, 0, true}, {time.Second, 0, false}, {2 * time.Second, 0, false},
		{rateWindow, 2, true}, {rateWindow, 0, true}, {rateWindow, 0, false},
	} {
		before, within := r.count(7, 1, start.Add(want.after))
		if before != want.before || within != want.within {
			t.Errorf("step %d: got %d, %v, want %d, %v", i, before, within, want.before, want.within)
		}
	}
	if _, within := r.count(8, 1, start); !within {
		t.Error("what one uid does counted for another")
	}
	if _, within := r.count(9, 3, start); within {
		t.Error("more than the limit at once was within it")
	}
}

func TestRateLimitCheck(t *testing.T) {
	r := rateLimit{most: 1}
	if err := r.check(7, 1, "keys"); err != nil {
		t.Errorf("the first: %v", err)
	}
	if err := r.check(7, 1, "keys"); fault.KindOf(err) != fault.Busy {
		t.Errorf("the second: got %v, want busy", err)
	}
}
