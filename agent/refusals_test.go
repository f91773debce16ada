package agent

import (
	"testing"
	"time"
)

func TestRefusalsAreCountedByWindow(t *testing.T) {
	r := refusals{burst: 2}
	start := time.Now()
	for i, want := range []struct {
		after  time.Duration
		before int
		record bool
	}{
		{0, 0, true}, {0, 0, true}, {time.Second, 0, false}, {2 * time.Second, 0, false},
		{refusalWindow, 2, true}, {refusalWindow, 0, true}, {refusalWindow, 0, false},
	} {
		before, record := r.count(7, start.Add(want.after))
		if before != want.before || record != want.record {
			t.Errorf("refusal %d: got %d, %v, want %d, %v", i, before, record, want.before, want.record)
		}
	}
	if _, record := r.count(8, start); !record {
		t.Error("one uid's refusals counted for another")
	}
}
