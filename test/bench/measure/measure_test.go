package measure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/test/swtpm"
)

func TestQuantile(t *testing.T) {
	values := []float64{9, 1, 8, 2, 7, 3, 6, 4, 5, 10}
	for _, test := range []struct{ q, want float64 }{{0, 1}, {0.5, 6}, {0.99, 10}, {1, 10}} {
		if got := Quantile(values, test.q); got != test.want {
			t.Errorf("quantile %v: got %v, want %v", test.q, got, test.want)
		}
	}
	if values[0] != 9 {
		t.Error("the values were put in order in place")
	}
	if got := Median([]time.Duration{3, 1, 2}); got != 2 {
		t.Errorf("median: got %d, want 2", got)
	}
}

func TestEachSideGoesFirstAsOften(t *testing.T) {
	first := [2]int{}
	for round := range 20 {
		order := Turn(round)
		first[order[0]]++
		if order[0]+order[1] != 1 {
			t.Errorf("round %d: got %v, want both sides", round, order)
		}
	}
	if first[0] != first[1] {
		t.Errorf("first turns: got %v, want as many for each", first)
	}
}

func TestRate(t *testing.T) {
	b := New(t.Output())
	pause := func(int) error { time.Sleep(5 * time.Millisecond); return nil }
	if got := b.Rate(2, pause); got < 50 || got > 401 {
		t.Errorf("two clients, 5 ms each: got %.0f a second, want at most 400", got)
	}
}

func TestAims(t *testing.T) {
	b := New(t.Output())
	b.AtMost("a", 2, "T", 2)
	b.AtMost("a", 2.01, "T", 2)
	b.AtLeast("a", 1, "ratio", 1)
	b.AtLeast("a", 0.99, "ratio", 1)
	for i, want := range []string{"2.00 meets <= 2", "2.01 MISSES <= 2", "1.000 meets >= 1", "0.990 MISSES >= 1"} {
		if got := b.results[i].Verdict(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestFailureEndsOneFigure: a figure that cannot be measured says why, and takes
// down what it had started.
func TestFailureEndsOneFigure(t *testing.T) {
	var started *swtpm.TPM
	_, err := measure(Figure{"broken", func(b *Bench) {
		started = swtpm.Start(b)
		b.Fatalf("out of %s", "luck")
	}}, t.Output())
	if err == nil || err.Error() != "out of luck" {
		t.Errorf("got %v, want the reason", err)
	}
	if started.Pid() != 0 {
		t.Error("the TPM still runs")
	}
}

func TestPanicIsNoFailure(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a defect of the bench was taken for a figure that fails")
		}
	}()
	_, _ = measure(Figure{"broken", func(*Bench) { panic("defect") }}, t.Output())
}

// A second program adds its figures to those of the first.
func TestAppend(t *testing.T) {
	out := filepath.Join(t.TempDir(), "bench.json")
	figure := func(name string) []Figure {
		return []Figure{{Name: name, Measure: func(b *Bench) { b.AtMost(name, 1, "T", 2) }}}
	}
	Main(figure("a"), nil, t.Output(), t.Output(), out)
	if status := Main(figure("b"), []string{"-append"}, t.Output(), t.Output(), out); status != 0 {
		t.Errorf("status %d", status)
	}
	text, err := os.ReadFile(out)
	if err != nil || strings.Count(string(text), `"met": true`) != 2 {
		t.Errorf("got %s, %v, want two results", text, err)
	}
}
