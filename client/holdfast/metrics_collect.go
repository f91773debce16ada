package main

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast/internal/metrics"
)

// collector hands the metrics of a reply to a registry of client_golang, which
// checks them: they come from another program, perhaps of another version.
type collector []metrics.Metric

var _ prometheus.Collector = collector{}

// Describe sends nothing: the metrics are known when they are collected.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends every sample.
func (c collector) Collect(out chan<- prometheus.Metric) {
	for _, m := range c {
		for _, s := range m.Samples {
			metric, err := sampleOf(m, s)
			if err != nil {
				metric = prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
			}
			out <- metric
		}
	}
}

func sampleOf(m metrics.Metric, s metrics.Sample) (prometheus.Metric, error) {
	if len(s.Labels)%2 != 0 {
		return nil, fmt.Errorf("%s has a label without a value", m.Name)
	}
	var names, values []string
	for i := 0; i < len(s.Labels); i += 2 {
		names, values = append(names, s.Labels[i]), append(values, s.Labels[i+1])
	}
	d := prometheus.V2.NewDesc(m.Name, m.Help, prometheus.UnconstrainedLabels(names), nil, prometheus.WithUnit(m.Unit))
	switch m.Kind {
	case metrics.KindCounter:
		return prometheus.NewConstMetric(d, prometheus.CounterValue, s.Value, values...)
	case metrics.KindGauge:
		return prometheus.NewConstMetric(d, prometheus.GaugeValue, s.Value, values...)
	case metrics.KindHistogram:
		buckets := make(map[float64]uint64, len(s.Buckets))
		for _, b := range s.Buckets {
			buckets[b.UpTo] = b.Count
		}
		return prometheus.NewConstHistogram(d, s.Count, s.Sum, buckets, values...)
	}
	return nil, fmt.Errorf("%s is a %.40q, which this program does not know", m.Name, m.Kind)
}
