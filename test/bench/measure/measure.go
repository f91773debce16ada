// Package measure is what the benchmarks of this project have in common: figures
// that are ratios or counts within one run, both sides in turn, and the median of
// the rounds.
//
// Start at [Main] and [Bench.CompareRates].
package measure

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// A Figure measures one thing, or several that come from the same rounds.
type Figure struct {
	Name    string
	Measure func(*Bench)
}

// Main measures figures and returns the exit status. It prints one line `name
// value unit` for each on stdout, and progress, and whether each meets its aim, on
// stderr. With out it also writes them to that file, as JSON. The arguments that it
// knows are -only PREFIX and -append.
func Main(figures []Figure, args []string, stdout, stderr io.Writer, out string) int {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "measure only the figures whose names start with `PREFIX`")
	add := flags.Bool("append", false, "add to what is in the output file already")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Fprintf(stderr, "bench: load average %s; beside other work, ratios and high quantiles mean little\n", strings.Fields(string(load))[0])
	}
	var results []Result
	status := 0
	for _, f := range figures {
		if !strings.HasPrefix(f.Name, *only) {
			continue
		}
		start := time.Now()
		got, err := measure(f, stderr)
		if err != nil {
			fmt.Fprintf(stderr, "bench: %s: %v\n", f.Name, err)
			status = 1
		}
		for _, r := range got {
			fmt.Fprintf(stdout, "%s %s %s\n", r.Name, r.Number(), r.Unit)
			fmt.Fprintf(stderr, "bench: %s: %s\n", r.Name, r.Verdict())
		}
		fmt.Fprintf(stderr, "bench: %s took %v\n", f.Name, time.Since(start).Round(100*time.Millisecond))
		results = append(results, got...)
	}
	if err := write(out, results, *add); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return status
}

// measure runs one figure with what it needs, and takes everything down again.
func measure(f Figure, stderr io.Writer) (results []Result, err error) {
	b := New(stderr)
	defer b.Close()
	defer func() {
		switch e := recover().(type) {
		case nil:
		case failure:
			results, err = b.results, e
		default:
			panic(e)
		}
	}()
	f.Measure(b)
	return b.results, nil
}

// write stores the results as a JSON array in file, if there is one; after those
// that are there already, with add.
func write(file string, results []Result, add bool) error {
	if file == "" {
		return nil
	}
	if add {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var before []Result
		if err := json.Unmarshal(text, &before); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		results = append(before, results...)
	}
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
