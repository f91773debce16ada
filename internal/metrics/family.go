package metrics

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"sync"
)

// units are the base units of OpenMetrics that a metric's name may end in.
func units() []string { return []string{"seconds", "bytes", "ratio"} }

// A family is one metric with all its sets of labels.
type family struct {
	name, help, kind, unit string
	labels                 []string
	bounds                 []float64 // ascending and finite

	mu   sync.Mutex         // guards sets and what they point to
	sets map[string]*series // by key
}

// A series holds the counts of one set of labels.
type series struct {
	values  []string
	value   float64  // of a counter or a gauge
	buckets []uint64 // of a histogram, not cumulative
	count   uint64
	sum     float64
}

func newFamily(kind, name, help string, bounds []float64, labels []string) *family {
	bounds = slices.DeleteFunc(slices.Clone(bounds), func(b float64) bool { return !finite(b) })
	slices.Sort(bounds)
	f := &family{
		name: name, help: help, kind: kind, unit: unitOf(name),
		labels: slices.Clone(labels),
		bounds: slices.Compact(bounds),
		sets:   make(map[string]*series),
	}
	if len(labels) == 0 {
		// Without labels the one series is known: a graph that starts at zero shows
		// the first event.
		f.seriesOf(nil)
	}
	return f
}

// unitOf returns the unit that a name ends in, before the _total of a counter.
func unitOf(name string) string {
	name = strings.TrimSuffix(name, "_total")
	for _, unit := range units() {
		if strings.HasSuffix(name, "_"+unit) {
			return unit
		}
	}
	return ""
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func (f *family) add(n float64, values []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// A sum that would overflow is dropped: JSON has no infinity.
	if s := f.seriesOf(values); finite(s.value + n) {
		s.value += n
	}
}

// seriesOf returns the series of these values and makes a new one if needed. The caller
// holds the lock.
func (f *family) seriesOf(values []string) *series {
	var space [256]byte // so that a known set costs no allocation
	key := space[:0]
	for _, v := range values {
		v = v[:min(len(v), MaxValue)]
		key = binary.AppendUvarint(key, uint64(len(v)))
		key = append(key, v...)
	}
	if s := f.sets[string(key)]; s != nil {
		return s
	}
	if len(values) != len(f.labels) || len(f.sets) >= MaxSets {
		return f.other()
	}
	s := f.newSeries(values)
	f.sets[string(key)] = s
	return s
}

// other returns the series for the sets that are not counted separately.
func (f *family) other() *series {
	const key = "" // no set of labels has it, unless there are no labels
	if s := f.sets[key]; s != nil {
		return s
	}
	s := f.newSeries(slices.Repeat([]string{Other}, len(f.labels)))
	f.sets[key] = s
	return s
}

// newSeries copies the values: they may be part of something large.
func (f *family) newSeries(values []string) *series {
	s := &series{values: make([]string, len(values)), buckets: make([]uint64, len(f.bounds))}
	for i, v := range values {
		s.values[i] = strings.ToValidUTF8(strings.Clone(v[:min(len(v), MaxValue)]), "?")
	}
	return s
}

func (f *family) snapshot() Metric {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := Metric{Name: f.name, Help: f.help, Kind: f.kind, Unit: f.unit, Samples: make([]Sample, 0, len(f.sets))}
	all := make([]*series, 0, len(f.sets))
	for _, s := range f.sets {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *series) int { return slices.Compare(a.values, b.values) })
	for _, s := range all {
		m.Samples = append(m.Samples, f.sample(s))
	}
	return m
}

func (f *family) sample(s *series) Sample {
	sample := Sample{Labels: make([]string, 0, 2*len(f.labels))}
	for i, name := range f.labels {
		sample.Labels = append(sample.Labels, name, s.values[i])
	}
	if f.kind != KindHistogram {
		sample.Value = s.value
		return sample
	}
	sample.Count, sample.Sum = s.count, s.sum
	var sum uint64
	for i, upTo := range f.bounds {
		sum += s.buckets[i]
		sample.Buckets = append(sample.Buckets, Bucket{UpTo: upTo, Count: sum})
	}
	return sample
}
