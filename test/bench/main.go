// Command bench measures the figures that this project answers for and prints
// one line `name value unit` for each. With BENCH_OUT set it also writes them to
// the file of that name, as JSON. Progress, and whether each figure meets its
// aim, go to stderr; a figure that does not is no error.
//
//	go run ./test/bench [-only PREFIX]
//
// Start at figures. A figure is a count or a ratio within one run, since times
// move by half from run to run: both sides run in turn, warm, each on a software
// TPM of its own, and the median of the rounds' ratios is printed (package measure).
// The direct side is go-tpm in this process, on one kept connection and without
// verification (direct.go); ours is the real agent, its client included
// (agent.go).
//
// A software TPM signs some hundred times faster than a chip, so whatever the
// agent adds weighs more here than on any real machine. Nothing here says how
// fast a chip is.
package main

import (
	"os"

	"holdfast/test/bench/measure"
	"holdfast/test/daemon"
)

// bench is what a figure reports to.
type bench = measure.Bench

// side is one of the things compared.
type side = measure.Side

func main() {
	if len(os.Args) > 1 && os.Args[1] == busyCommand {
		os.Exit(busy(os.Args[2:]))
	}
	status := measure.Main(figures(), os.Args[1:], os.Stdout, os.Stderr, os.Getenv("BENCH_OUT"))
	daemon.Remove()
	os.Exit(status)
}

func figures() []measure.Figure {
	return []measure.Figure{
		{Name: "tpm_commands_per_signature", Measure: commandsPerSignature},
		{Name: "sign_rate_vs_direct", Measure: signRates},
		{Name: "handshake_rate_vs_direct", Measure: handshakeRates},
		{Name: "sign_rate_slow_tpm_vs_direct", Measure: slowSignRate},
		{Name: "added_latency_us", Measure: addedLatency},
		{Name: "polite_wait_T", Measure: politeWait},
		{Name: "first_signature", Measure: firstSignature},
		{Name: "stub_start", Measure: stubStart},
		{Name: "concurrent_mint", Measure: mintedOnce},
		{Name: "proxy_request_overhead", Measure: proxyOverhead},
		{Name: "proxy_stream", Measure: proxyStream},
		{Name: "signatures_for_100_requests", Measure: signaturesForRuns},
		{Name: "agent_rss_mib", Measure: agentMemory},
		{Name: "card_overhead", Measure: cardOverhead},
	}
}
