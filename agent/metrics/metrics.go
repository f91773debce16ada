// Package metrics counts what the agent and the broker do, for their GetMetrics.
// Names and meanings follow OpenMetrics; `holdfast metrics` renders them.
//
// Start at [New]; a metric is made once, with the names of its labels, and
// counted with their values.
package metrics

// The kinds of metric.
const (
	KindCounter   = "counter"
	KindGauge     = "gauge"
	KindHistogram = "histogram"
)

// Metric is one metric and its samples at one moment.
type Metric struct {
	Name    string   `json:"name"`
	Help    string   `json:"help"`
	Kind    string   `json:"kind"`
	Unit    string   `json:"unit,omitempty"`
	Samples []Sample `json:"samples"`
}

// Sample is the value of a metric for one set of labels.
type Sample struct {
	Labels  []string `json:"labels"` // names and values, in turn
	Value   float64  `json:"value,omitempty"`
	Count   uint64   `json:"count,omitempty"`
	Sum     float64  `json:"sum,omitempty"`
	Buckets []Bucket `json:"buckets,omitempty"` // cumulative, without the infinite one
}

// Bucket is how many observations of a histogram were at most UpTo.
type Bucket struct {
	UpTo  float64 `json:"upTo"`
	Count uint64  `json:"count"`
}

// A Registry holds the metrics of one process. It is safe for concurrent use.
type Registry struct{}

// New returns a registry without metrics.
func New() *Registry { return &Registry{} }

// Counter makes a counter. By convention its name ends in _total.
func (r *Registry) Counter(name, help string, labels ...string) *Counter { return &Counter{} }

// Gauge makes a gauge.
func (r *Registry) Gauge(name, help string, labels ...string) *Gauge { return &Gauge{} }

// Histogram makes a histogram with the upper bounds of its buckets, ascending.
func (r *Registry) Histogram(name, help string, buckets []float64, labels ...string) *Histogram {
	return &Histogram{}
}

// Snapshot returns every metric as it is now, sorted by name.
func (r *Registry) Snapshot() []Metric { return nil }

// A Counter only grows.
type Counter struct{}

// Add adds n to the counter with these values of its labels.
func (c *Counter) Add(n float64, values ...string) {}

// A Gauge goes up and down.
type Gauge struct{}

// Set sets the gauge with these values of its labels.
func (g *Gauge) Set(v float64, values ...string) {}

// A Histogram counts observations in buckets.
type Histogram struct{}

// Observe counts v.
func (h *Histogram) Observe(v float64, values ...string) {}
