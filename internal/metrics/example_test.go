package metrics_test

import (
	"fmt"

	"holdfast/internal/metrics"
)

func Example() {
	registry := metrics.New()
	requests := registry.Counter("requests_total", "Requests, by their outcome.", "outcome")
	requests.Add(1, "ok")
	requests.Add(1, "denied")
	requests.Add(1, "ok")
	for _, m := range registry.Snapshot() {
		for _, s := range m.Samples {
			fmt.Println(m.Name, s.Labels, s.Value)
		}
	}
	// Output:
	// requests_total [outcome denied] 1
	// requests_total [outcome ok] 2
}
