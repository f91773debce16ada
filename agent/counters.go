package agent

import (
	"context"
	"errors"
	"time"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/metrics"
	"holdfast/internal/policy"
	"holdfast/internal/varlink"
)

// counters are the metrics of GetMetrics. Label values are the agent's own words and
// never the name of a key or a caller, which a reader of the metrics may not be allowed
// to know.
type counters struct {
	registry    *metrics.Registry
	requests    *metrics.Counter
	decisions   *metrics.Counter
	signatures  *metrics.Counter
	pinTries    *metrics.Counter
	refused     *metrics.Counter
	changes     *metrics.Counter
	queue       *metrics.Histogram
	device      *metrics.Histogram
	connections *metrics.Gauge
	watchers    *metrics.Gauge
	prompts     *metrics.Counter
	promptsOpen *metrics.Gauge
	touches     *metrics.Counter
	waiting     *metrics.Gauge
	ready       *metrics.Gauge
}

// seconds are the buckets for waiting and for device commands: from a software
// TPM's signature to an RSA key that a slow chip takes a minute for.
func seconds() []float64 {
	return []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60}
}

func newCounters(version string, started time.Time) *counters {
	r := metrics.New()
	r.Gauge("holdfast_agent_info", "The version that runs.", "version").Set(1, version)
	r.Gauge("holdfast_agent_start_time_seconds", "When the agent started, in seconds after 1970.").Set(float64(started.UnixMilli()) / 1000)
	return &counters{
		registry:    r,
		requests:    r.Counter("holdfast_agent_requests_total", "Requests that were answered, by outcome.", "method", "outcome"),
		decisions:   r.Counter("holdfast_agent_decisions_total", "Decisions about requests and connections.", "operation", "decision"),
		signatures:  r.Counter("holdfast_agent_signatures_total", "Signatures that the policy allowed, by outcome.", "purpose", "backend", "outcome"),
		pinTries:    r.Counter("holdfast_agent_pin_tries_total", "PINs that were given to a device, by outcome.", "backend", "outcome"),
		refused:     r.Counter("holdfast_agent_connections_refused_total", "Connections that were closed unread.", "reason"),
		changes:     r.Counter("holdfast_agent_device_changes_total", "Changes of a device's state, by the new state.", "backend", "state"),
		queue:       r.Histogram("holdfast_agent_queue_seconds", "How long work waited for its turn on the device.", seconds(), "backend"),
		device:      r.Histogram("holdfast_agent_device_seconds", "How long work held the device.", seconds(), "backend"),
		connections: r.Gauge("holdfast_agent_connections", "Connections that are open."),
		watchers:    r.Gauge("holdfast_agent_watchers", "Calls of Watch under way."),
		prompts:     r.Counter("holdfast_agent_prompts_total", "Times that a user was asked for a PIN or a confirmation, by outcome.", "what", "outcome"),
		promptsOpen: r.Gauge("holdfast_agent_prompts_open", "Prompts that wait for a user now."),
		touches:     r.Counter("holdfast_agent_touches_total", "Signatures that waited for a touch, by outcome.", "outcome"),
		waiting:     r.Gauge("holdfast_agent_queue_waiting", "Requests that wait for the device now.", "backend"),
		ready:       r.Gauge("holdfast_agent_device_ready", "1 when the device was ready when it was last looked at, else 0.", "backend"),
	}
}

// The outcomes that are not a [fault.Kind].
const (
	outcomeOK = "ok"
	// outcomeGone means that the caller left before the agent answered.
	outcomeGone = "gone"
)

// outcomeOf returns the outcome of err for the metrics and the audit log.
func outcomeOf(err error) string {
	if err == nil {
		return outcomeOK
	}
	return string(fault.KindOf(err))
}

// counted wraps methods so that their answers are counted.
func (c *counters) counted(methods map[string]varlink.Method) map[string]varlink.Method {
	for name, method := range methods {
		methods[name] = func(ctx context.Context, call *varlink.Call) error {
			err := method(ctx, call)
			c.requests.Add(1, name, answerOf(ctx, err))
			return err
		}
	}
	return methods
}

// answerOf returns the outcome of a request. It keeps a caller that left, and
// parameters that do not parse, apart from a defect of the agent.
func answerOf(ctx context.Context, err error) string {
	var refused *varlink.Error
	switch {
	case err != nil && ctx.Err() != nil:
		return outcomeGone
	case errors.As(err, &refused):
		return string(fault.BadRequest)
	case errors.Is(err, context.DeadlineExceeded):
		return string(fault.Deadline)
	}
	return outcomeOf(err)
}

// getMetrics answers callers that policy allows to see the status.
func (r *request) getMetrics(context.Context, *agentwire.Empty) (*agentwire.GetMetricsReply, error) {
	if _, err := r.allow(policy.Status, "", r.self()); err != nil {
		return nil, err
	}
	r.agent.measure()
	return &agentwire.GetMetricsReply{Metrics: r.agent.counts.registry.Snapshot()}, nil
}

// measure sets the gauges. It asks no device: the metrics must not cost device time.
func (a *Agent) measure() {
	c := a.counts
	c.connections.Set(float64(a.door.Connections()))
	c.watchers.Set(float64(a.watch.number()))
	c.promptsOpen.Set(float64(a.prompts.number()))
	for name, d := range a.devices {
		c.waiting.Set(float64(d.lanes.Waiting()), name)
		switch d.last().State {
		case "": // no status was read yet
		case keys.StateReady:
			c.ready.Set(1, name)
		default:
			c.ready.Set(0, name)
		}
	}
}
