// Command bench measures the figures that this project answers for and prints
// one line `name value unit` for each. With BENCH_OUT set it also writes them to
// the file of that name, as JSON. Progress, and whether each figure meets its
// aim, go to stderr; a figure that does not is no error.
//
//	go run ./test/bench [-only PREFIX]
//
// Start at figures. A figure is a count or a ratio within one run, since times
// move by half from run to run: both sides run in turn, warm, each on a software
// TPM of its own, and the median of the rounds' ratios is printed (compare.go).
// The direct side is go-tpm in this process, on one kept connection and without
// verification (direct.go); ours is the real agent, its client included
// (agent.go).
//
// A software TPM signs some hundred times faster than a chip, so whatever the
// agent adds weighs more here than on any real machine. Nothing here says how
// fast a chip is.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == busyCommand {
		os.Exit(busy(os.Args[2:]))
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, os.Getenv("BENCH_OUT")))
}

// A figure measures one thing, or several that come from the same rounds.
type figure struct {
	name    string
	measure func(*bench)
}

func figures() []figure {
	return []figure{
		{"tpm_commands_per_signature", commandsPerSignature},
		{"sign_rate_vs_direct", signRates},
		{"handshake_rate_vs_direct", handshakeRates},
		{"sign_rate_slow_tpm_vs_direct", slowSignRate},
		{"added_latency_us", addedLatency},
		{"polite_wait_T", politeWait},
		{"first_signature", firstSignature},
		{"agent_rss_mib", agentMemory},
	}
}

func run(args []string, stdout, stderr io.Writer, out string) int {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "measure only the figures whose names start with `PREFIX`")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Fprintf(stderr, "bench: load average %s; beside other work, ratios and high quantiles mean little\n", strings.Fields(string(load))[0])
	}
	var results []result
	status := 0
	for _, f := range figures() {
		if !strings.HasPrefix(f.name, *only) {
			continue
		}
		start := time.Now()
		got, err := measure(f, stderr)
		if err != nil {
			fmt.Fprintf(stderr, "bench: %s: %v\n", f.name, err)
			status = 1
		}
		for _, r := range got {
			fmt.Fprintf(stdout, "%s %s %s\n", r.Name, r.number(), r.Unit)
			fmt.Fprintf(stderr, "bench: %s: %s\n", r.Name, r.verdict())
		}
		fmt.Fprintf(stderr, "bench: %s took %v\n", f.name, time.Since(start).Round(100*time.Millisecond))
		results = append(results, got...)
	}
	if err := write(out, results); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return status
}

// measure runs one figure with what it needs, and takes everything down again.
func measure(f figure, stderr io.Writer) (results []result, err error) {
	b := &bench{stderr: stderr}
	defer b.close()
	defer func() {
		switch e := recover().(type) {
		case nil:
		case failure:
			results, err = b.results, e
		default:
			panic(e)
		}
	}()
	f.measure(b)
	return b.results, nil
}

// write stores the results as a JSON array in file, if there is one.
func write(file string, results []result) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
