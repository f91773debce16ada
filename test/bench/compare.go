package main

import (
	"slices"
	"sync"
	"time"
)

// How much is measured: enough rounds for a median that stays, each long enough
// to be more than noise.
const (
	rounds    = 21
	warmUps   = 2
	roundTime = 120 * time.Millisecond
)

// A side is one of the things compared: what one client does, over and over.
type side func(client int) error

// compareRates has both sides run in turn with that many clients and returns
// the median over the rounds of ours' rate divided by direct's.
func (b *bench) compareRates(clients int, ours, direct side) float64 {
	var ratios []float64
	for round := range warmUps + rounds {
		var rates [2]float64
		for _, i := range turn(round) {
			rates[i] = b.rate(clients, [...]side{ours, direct}[i])
		}
		if round >= warmUps {
			ratios = append(ratios, rates[0]/rates[1])
		}
	}
	return median(ratios)
}

// turn returns the order of the sides in a round: each goes first as often as
// the other.
func turn(round int) [2]int {
	if round%2 == 0 {
		return [2]int{0, 1}
	}
	return [2]int{1, 0}
}

// rate returns how often per second the clients together get s done.
func (b *bench) rate(clients int, s side) float64 {
	counts, errs := make([]int, clients), make([]error, clients)
	start := time.Now()
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for time.Since(start) < roundTime && errs[c] == nil {
				if errs[c] = s(c); errs[c] == nil {
					counts[c]++
				}
			}
		})
	}
	all.Wait()
	elapsed, total := time.Since(start), 0
	for c := range clients {
		b.check("client", errs[c])
		total += counts[c]
	}
	return float64(total) / elapsed.Seconds()
}

// timed returns how long s took n times in a row.
func (b *bench) timed(n int, s side) []time.Duration {
	list := make([]time.Duration, n)
	for i := range list {
		start := time.Now()
		b.check("client", s(0))
		list[i] = time.Since(start)
	}
	return list
}

// median returns the middle value; of an even number of values, the upper one.
func median[T float64 | time.Duration](values []T) T { return quantile(values, 0.5) }

// quantile returns the value below which the share q of all values lies.
func quantile[T float64 | time.Duration](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
