package minted

import (
	"time"

	"holdfast/internal/metrics"
)

// counts are the metrics of a mint.
type counts struct {
	mints      *metrics.Counter
	seconds    *metrics.Histogram
	shared     *metrics.Counter
	inferences *metrics.Counter
	held       *metrics.Gauge
	ttl        *metrics.Histogram
}

func newCounts(r *metrics.Registry) counts {
	return counts{
		mints:      r.Counter("holdfast_broker_mints_total", "Credentials asked of API servers, by outcome.", "mode", "outcome"),
		seconds:    r.Histogram("holdfast_broker_mint_seconds", "How long a credential took to obtain.", []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 300}, "mode"),
		shared:     r.Counter("holdfast_broker_mint_shares_total", "Callers that waited for a mint that another caller had started.", "mode"),
		inferences: r.Counter("holdfast_broker_mint_inferences_total", "Credentials that may have been refused, by the cluster's verdict: accepted, refused, unknown.", "mode", "result"),
		held:       r.Gauge("holdfast_broker_minted_credentials", "Credentials in memory.", "profile"),
		ttl:        r.Histogram("holdfast_broker_credential_ttl_seconds", "How long credentials could still be used when they were handed out.", []float64{0, 30, 60, 300, 600, 1800, 3600, 14400, 43200, 86400}, "mode"),
	}
}

func (c *counts) minted(mode string, err error, took time.Duration) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	c.mints.Add(1, mode, outcome)
	c.seconds.Observe(took.Seconds(), mode)
}
