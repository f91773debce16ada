// Package metrics counts what the agent and the broker do, for their GetMetrics.
// Names and meanings follow OpenMetrics; `holdfast metrics` renders them.
//
// Start at [New]. A program makes a metric once, with the names of its labels, and
// counts with their values. Counting cannot fail: an event that cannot be counted
// under its labels is counted under the labels "other", or dropped.
//
// Every reader of the metrics sees the values of labels: they must name kinds of
// things, and never hold a secret or text that a caller chose.
package metrics

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// The kinds of metric.
const (
	KindCounter   = "counter"
	KindGauge     = "gauge"
	KindHistogram = "histogram"
)

// Limits on what one metric may hold, so that no caller can make it grow.
const (
	// MaxSets is how many sets of labels one metric counts separately. It counts
	// further ones together, under [Other] for every label.
	MaxSets = 1000

	// MaxValue is how many bytes of a label's value are kept.
	MaxValue = 128
)

// Other is the value of every label in the set for events that are not counted
// separately.
const Other = "other"

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
type Registry struct {
	mu       sync.Mutex // guards families
	families map[string]*family
}

// New returns a registry without metrics.
func New() *Registry { return &Registry{families: make(map[string]*family)} }

// Counter makes a counter. By convention its name ends in _total. A name that
// has been made already gives that counter again; it must have had the same kind
// and labels, else Counter panics, as do the makers of the other kinds.
func (r *Registry) Counter(name, help string, labels ...string) *Counter {
	return &Counter{r.family(KindCounter, name, help, nil, labels)}
}

// Gauge makes a gauge.
func (r *Registry) Gauge(name, help string, labels ...string) *Gauge {
	return &Gauge{r.family(KindGauge, name, help, nil, labels)}
}

// Histogram makes a histogram with the upper bounds of its buckets. The infinite
// one is implied.
func (r *Registry) Histogram(name, help string, buckets []float64, labels ...string) *Histogram {
	return &Histogram{r.family(KindHistogram, name, help, buckets, labels)}
}

// Snapshot returns every metric as it is now, sorted by name, each with its
// samples sorted by the values of their labels. A metric with labels has no
// sample before it has counted. No number in it is infinite or not a number.
func (r *Registry) Snapshot() []Metric {
	r.mu.Lock()
	families := make([]*family, 0, len(r.families))
	for _, f := range r.families {
		families = append(families, f)
	}
	r.mu.Unlock()

	slices.SortFunc(families, func(a, b *family) int { return strings.Compare(a.name, b.name) })
	list := make([]Metric, len(families))
	for i, f := range families {
		list[i] = f.snapshot()
	}
	return list
}

// family returns the metric of that name, made now if there is none.
func (r *Registry) family(kind, name, help string, buckets []float64, labels []string) *family {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.families[name]; f != nil {
		if f.kind != kind || !slices.Equal(f.labels, labels) {
			// The program is wrong, not its input, and shows it at its start.
			panic(fmt.Sprintf("metrics: %s is made twice, and not alike", name))
		}
		return f
	}
	f := newFamily(kind, name, help, buckets, labels)
	r.families[name] = f
	return f
}

// A Counter only grows.
type Counter struct{ family *family }

// Add adds n to the counter with these values of its labels. It ignores n that
// is negative, infinite or not a number.
func (c *Counter) Add(n float64, values ...string) {
	if n >= 0 {
		c.family.add(n, values)
	}
}

// A Gauge goes up and down.
type Gauge struct{ family *family }

// Set sets the gauge with these values of its labels. It ignores v that is
// infinite or not a number.
func (g *Gauge) Set(v float64, values ...string) {
	if !finite(v) {
		return
	}
	g.family.mu.Lock()
	defer g.family.mu.Unlock()
	g.family.seriesOf(values).value = v
}

// Add moves the gauge with these values of its labels by n, which may be
// negative.
func (g *Gauge) Add(n float64, values ...string) {
	g.family.add(n, values)
}

// A Histogram counts observations in buckets.
type Histogram struct{ family *family }

// Observe counts v with these values of the labels. It ignores v that is
// infinite or not a number.
func (h *Histogram) Observe(v float64, values ...string) {
	if !finite(v) {
		return
	}
	h.family.mu.Lock()
	defer h.family.mu.Unlock()
	s := h.family.seriesOf(values)
	s.count++
	if finite(s.sum + v) {
		s.sum += v
	}
	if i, _ := slices.BinarySearch(h.family.bounds, v); i < len(h.family.bounds) {
		s.buckets[i]++
	}
}
