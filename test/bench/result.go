package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"holdfast/test/swtpm"
)

// A result is one printed line.
type result struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Aim   string  `json:"aim"`
	Met   bool    `json:"met"`
}

// number returns the value with as many digits as mean something.
func (r result) number() string {
	if r.Unit == "commands" {
		return strconv.FormatFloat(r.Value, 'f', -1, 64)
	}
	digits := 2
	if r.Unit == "ratio" {
		digits = 3
	}
	return strconv.FormatFloat(r.Value, 'f', digits, 64)
}

func (r result) verdict() string {
	if r.Met {
		return fmt.Sprintf("%s meets %s", r.number(), r.Aim)
	}
	return fmt.Sprintf("%s MISSES %s", r.number(), r.Aim)
}

// A bench is what a figure reports to and borrows from. It is the swtpm.TB of a
// program that is no test.
type bench struct {
	stderr   io.Writer
	results  []result
	cleanups []func()
}

var _ swtpm.TB = (*bench)(nil)

// A failure ends a figure; measure recovers it.
type failure struct{ error }

// atMost and atLeast add a result with its aim.
func (b *bench) atMost(name string, value float64, unit string, aim float64) {
	b.results = append(b.results, result{name, value, unit, fmt.Sprintf("<= %v", aim), value <= aim})
}

func (b *bench) atLeast(name string, value float64, unit string, aim float64) {
	b.results = append(b.results, result{name, value, unit, fmt.Sprintf(">= %v", aim), value >= aim})
}

// say reports progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.stderr, "bench: "+format+"\n", args...)
}

// Helper implements swtpm.TB.
func (b *bench) Helper() {}

// Fatalf ends the figure.
func (b *bench) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// Cleanup runs f when the figure is done, the last one first.
func (b *bench) Cleanup(f func()) { b.cleanups = append(b.cleanups, f) }

func (b *bench) close() {
	for len(b.cleanups) > 0 {
		last := len(b.cleanups) - 1
		f := b.cleanups[last]
		b.cleanups = b.cleanups[:last]
		f()
	}
}

// check ends the figure when err is not nil.
func (b *bench) check(what string, err error) {
	if err != nil {
		b.Fatalf("%s: %w", what, err)
	}
}

// dir makes a directory for this user alone, as an agent's socket wants it.
func (b *bench) dir() string {
	dir, err := os.MkdirTemp("", "bench-")
	b.check("directory", err)
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
