package measure

import (
	"slices"
	"sync"
	"time"
)

// Rounds is how often a thing is measured: often enough for a median that stays.
const Rounds = 21

// WarmUps is how many rounds come before that do not count.
const WarmUps = 2

// roundTime is long enough to be more than noise.
const roundTime = 120 * time.Millisecond

// A Side is one of the things compared: what one client does, over and over.
type Side func(client int) error

// CompareRates has both sides run in turn with that many clients and returns
// the median over the rounds of ours' rate divided by direct's.
func (b *Bench) CompareRates(clients int, ours, direct Side) float64 {
	var ratios []float64
	for round := range WarmUps + Rounds {
		var rates [2]float64
		for _, i := range Turn(round) {
			rates[i] = b.Rate(clients, [...]Side{ours, direct}[i])
		}
		if round >= WarmUps {
			ratios = append(ratios, rates[0]/rates[1])
		}
	}
	return Median(ratios)
}

// Turn returns the order of the sides in a round: each goes first as often as
// the other.
func Turn(round int) [2]int {
	if round%2 == 0 {
		return [2]int{0, 1}
	}
	return [2]int{1, 0}
}

// Rate returns how often per second the clients together get s done.
func (b *Bench) Rate(clients int, s Side) float64 {
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
		b.Check("client", errs[c])
		total += counts[c]
	}
	return float64(total) / elapsed.Seconds()
}

// Timed returns how long s took n times in a row.
func (b *Bench) Timed(n int, s Side) []time.Duration {
	list := make([]time.Duration, n)
	for i := range list {
		start := time.Now()
		b.Check("client", s(0))
		list[i] = time.Since(start)
	}
	return list
}

// Median returns the middle value; of an even number of values, the upper one.
func Median[T float64 | time.Duration](values []T) T { return Quantile(values, 0.5) }

// Quantile returns the value below which the share q of all values lies.
func Quantile[T float64 | time.Duration](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
