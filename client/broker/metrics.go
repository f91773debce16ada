package broker

import (
	"slices"
	"strings"

	"holdfast/internal/metrics"
)

// profileLabel is the label by which metrics tell profiles apart.
const profileLabel = "profile"

// redactProfiles returns metrics for a caller that knows some profiles: the samples of
// all others are added up under [metrics.Other], so that the caller does not learn
// that those profiles exist.
func redactProfiles(list []metrics.Metric, known func(profile string) bool) []metrics.Metric {
	for i := range list {
		kept := make([]metrics.Sample, 0, len(list[i].Samples))
		at := map[string]int{}
		for _, s := range list[i].Samples {
			s.Labels = redactLabels(s.Labels, known)
			key := strings.Join(s.Labels, "\x00")
			if first, there := at[key]; there {
				kept[first] = sum(kept[first], s)
				continue
			}
			at[key] = len(kept)
			kept = append(kept, s)
		}
		list[i].Samples = kept
	}
	return list
}

// redactLabels returns labels with an unknown profile's name replaced.
func redactLabels(labels []string, known func(string) bool) []string {
	for i := 0; i+1 < len(labels); i += 2 {
		if labels[i] == profileLabel && !known(labels[i+1]) {
			labels = slices.Clone(labels)
			labels[i+1] = metrics.Other
		}
	}
	return labels
}

// sum returns the sum of two samples of one metric.
func sum(a, b metrics.Sample) metrics.Sample {
	a.Value, a.Count, a.Sum = a.Value+b.Value, a.Count+b.Count, a.Sum+b.Sum
	a.Buckets = slices.Clone(a.Buckets)
	for i := range a.Buckets {
		if i < len(b.Buckets) { // of one metric they are the same
			a.Buckets[i].Count += b.Buckets[i].Count
		}
	}
	return a
}
