package proxy

import (
	"errors"

	"holdfast/internal/metrics"
)

// counts are the proxy's metrics. No client can choose a label's value.
type counts struct {
	requests *metrics.Counter
	refusals *metrics.Counter // requests
	rejected *metrics.Counter // connections
	owners   *metrics.Counter
	retries  *metrics.Counter
	upgrades *metrics.Gauge
	overhead *metrics.Histogram
}

func newCounts(r *metrics.Registry) counts {
	return counts{
		requests: r.Counter("holdfast_broker_proxy_requests_total",
			"Requests that were admitted, by outcome: ok, canceled, or why they did not reach the API server.", "profile", "outcome"),
		refusals: r.Counter("holdfast_broker_proxy_refusals_total",
			"Requests that were not admitted, by reason: ticket, owner, policy, profile, method, path, upgrade or limit.", "reason"),
		rejected: r.Counter("holdfast_broker_proxy_refused_connections_total",
			"Connections that were closed at once: too many, or of an unknown owner.", "reason"),
		owners: r.Counter("holdfast_broker_proxy_ownership_checks_total",
			"Times the kernel was asked who owns a connection.", "outcome"),
		retries: r.Counter("holdfast_broker_proxy_unauthorized_retries_total",
			"Requests that were sent again on a fresh handshake after a 401.", "profile", "outcome"),
		upgrades: r.Gauge("holdfast_broker_proxy_upgrades", "Upgraded connections open now: exec, attach, port-forward.", "profile"),
		overhead: r.Histogram("holdfast_broker_proxy_overhead_seconds", "Time from a request's arrival until it is sent on.",
			[]float64{25e-6, 50e-6, 100e-6, 200e-6, 300e-6, 500e-6, 1e-3, 5e-3, 25e-3, 100e-3}, "profile"),
	}
}

func (c *counts) refused(r *refusal) { c.refusals.Add(1, r.outcome) }

func (c *counts) refusedConnection(err error) {
	reason := "owner"
	if errors.Is(err, errFull) || errors.Is(err, errFlood) {
		reason = "full"
	}
	c.rejected.Add(1, reason)
}

func (c *counts) ownership(owns bool) {
	outcome := "refused"
	if owns {
		outcome = "owned"
	}
	c.owners.Add(1, outcome)
}

func (c *counts) retried(profile string, helped bool) {
	outcome := "unauthorized"
	if helped {
		outcome = "helped"
	}
	c.retries.Add(1, profile, outcome)
}
