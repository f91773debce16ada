package measure

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"holdfast/test/swtpm"
)

// A Result is one printed line.
type Result struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Aim   string  `json:"aim"`
	Met   bool    `json:"met"`
}

// Number returns the value with as many digits as mean something.
func (r Result) Number() string {
	if r.Unit == "commands" {
		return strconv.FormatFloat(r.Value, 'f', -1, 64)
	}
	digits := 2
	if r.Unit == "ratio" {
		digits = 3
	}
	return strconv.FormatFloat(r.Value, 'f', digits, 64)
}

// Verdict says whether the result meets its aim.
func (r Result) Verdict() string {
	if r.Met {
		return fmt.Sprintf("%s meets %s", r.Number(), r.Aim)
	}
	return fmt.Sprintf("%s MISSES %s", r.Number(), r.Aim)
}

// A bench is what a figure reports to and borrows from. It is the swtpm.TB of a
// program that is no test.
type Bench struct {
	stderr   io.Writer
	results  []Result
	cleanups []func()
}

var _ swtpm.TB = (*Bench)(nil)

// A failure ends a figure; measure recovers it.
type failure struct{ error }

// AtMost adds a result that is to be at most aim.
func (b *Bench) AtMost(name string, value float64, unit string, aim float64) {
	b.results = append(b.results, Result{name, value, unit, fmt.Sprintf("<= %v", aim), value <= aim})
}

// AtLeast adds a result that is to be at least aim.
func (b *Bench) AtLeast(name string, value float64, unit string, aim float64) {
	b.results = append(b.results, Result{name, value, unit, fmt.Sprintf(">= %v", aim), value >= aim})
}

// Say reports progress.
func (b *Bench) Say(format string, args ...any) {
	fmt.Fprintf(b.stderr, "bench: "+format+"\n", args...)
}

// Helper implements swtpm.TB.
func (b *Bench) Helper() {}

// Fatalf ends the figure.
func (b *Bench) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// Cleanup runs f when the figure is done, the last one first.
func (b *Bench) Cleanup(f func()) { b.cleanups = append(b.cleanups, f) }

// Close takes down what was borrowed, the last thing first.
func (b *Bench) Close() {
	for len(b.cleanups) > 0 {
		last := len(b.cleanups) - 1
		f := b.cleanups[last]
		b.cleanups = b.cleanups[:last]
		f()
	}
}

// Check ends the figure when err is not nil.
func (b *Bench) Check(what string, err error) {
	if err != nil {
		b.Fatalf("%s: %w", what, err)
	}
}

// Dir makes a directory for this user alone, as an agent's socket wants it.
func (b *Bench) Dir() string {
	dir, err := os.MkdirTemp("", "bench-")
	b.Check("directory", err)
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// New returns a Bench that reports its progress to stderr.
func New(stderr io.Writer) *Bench { return &Bench{stderr: stderr} }

// Results returns what has been measured.
func (b *Bench) Results() []Result { return b.results }
