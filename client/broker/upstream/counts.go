package upstream

import (
	"sync"
	"time"

	"holdfast/internal/metrics"
)

// counts holds the numbers for status and metrics, by profile.
type counts struct {
	handshakes *metrics.Counter
	seconds    *metrics.Histogram
	open       *metrics.Gauge
	signed     *metrics.Counter

	mu   *sync.Mutex
	each map[string]*profileCount
}

type profileCount struct{ connections, signatures int }

func newCounts(r *metrics.Registry) counts {
	return counts{
		handshakes: r.Counter("holdfast_broker_upstream_handshakes_total", "TLS handshakes with API servers, by outcome: ok, resumed, or the kind of the error.", "profile", "outcome"),
		seconds:    r.Histogram("holdfast_broker_upstream_handshake_seconds", "Duration of connecting and handshake, the signature included.", []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60}, "profile"),
		open:       r.Gauge("holdfast_broker_upstream_connections", "Open connections to API servers.", "profile"),
		signed:     r.Counter("holdfast_broker_upstream_signatures_total", "Handshakes that the agent signed.", "profile"),
		mu:         &sync.Mutex{}, each: map[string]*profileCount{},
	}
}

func (c *counts) change(profile string, connections, signatures int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.each[profile]
	if t == nil {
		t = &profileCount{}
		c.each[profile] = t
	}
	t.connections += connections
	t.signatures += signatures
	c.open.Set(float64(t.connections), profile)
	if signatures > 0 {
		c.signed.Add(float64(signatures), profile)
	}
}

func (c *counts) of(profile string) (connections, signatures int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.each[profile]; t != nil {
		return t.connections, t.signatures
	}
	return 0, 0
}

func (c *counts) handshake(profile, outcome string, took time.Duration) {
	c.handshakes.Add(1, profile, outcome)
	c.seconds.Observe(took.Seconds(), profile)
}
