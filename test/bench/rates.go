package main

import (
	"fmt"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/test/bench/measure"
	"holdfast/test/swtpm"
)

// signRates compares signatures per second of one busy client, and of many.
func signRates(b *bench) {
	ours := signer(startAgent(b, swtpm.Start(b).Device()).key(b))
	straight := newDirect(b, swtpm.Start(b).Dial)
	for _, c := range []struct {
		clients int
		aim     float64
	}{{1, 0.85}, {32, 1.00}} {
		b.Say("signing with %d clients", c.clients)
		ratio := b.CompareRates(c.clients, ours, straight.sign)
		b.AtLeast(fmt.Sprintf("sign_rate_vs_direct_%d", c.clients), ratio, "ratio", c.aim)
	}
}

// slowSign is what a quick chip takes for a signature.
const slowSign = 60 * time.Millisecond

// slowSignRate is the same on TPMs that take as long as chips do. A round is a
// few signatures.
func slowSignRate(b *bench) {
	slow := swtpm.Options{Delay: map[tpm2.TPMCC]time.Duration{tpm2.TPMCCSign: slowSign}}
	ours := signer(startAgent(b, swtpm.NewProxy(b, swtpm.Start(b), slow).Device()).key(b))
	straight := newDirect(b, swtpm.NewProxy(b, swtpm.Start(b), slow).Dial)
	b.Say("signing on TPMs that take %v", slowSign)
	var ratios []float64
	for round := range measure.Rounds {
		var took [2]time.Duration
		for _, i := range measure.Turn(round) {
			for _, d := range b.Timed(2, [...]side{ours, straight.sign}[i]) {
				took[i] += d
			}
		}
		ratios = append(ratios, float64(took[1])/float64(took[0]))
	}
	b.AtLeast("sign_rate_slow_tpm_vs_direct", measure.Median(ratios), "ratio", 0.99)
}

// addedLatency is what a signature through the agent takes longer than the
// least that it can take, both verifications included: the agent's and the
// client's.
func addedLatency(b *bench) {
	ours := signer(startAgent(b, swtpm.Start(b).Device()).key(b))
	straight := newDirect(b, swtpm.Start(b).Dial)
	b.Say("latency of single signatures")
	const perRound = 100
	var added []float64
	for round := range measure.WarmUps + measure.Rounds {
		var p50 [2]time.Duration
		for _, i := range measure.Turn(round) {
			p50[i] = measure.Median(b.Timed(perRound, [...]side{ours, straight.signByHand}[i]))
		}
		if round >= measure.WarmUps {
			added = append(added, float64(p50[0]-p50[1])/float64(time.Microsecond))
		}
	}
	b.AtMost("added_latency_us", measure.Median(added), "us", 200)
}
