package broker

import (
	"slices"
	"strings"

	"holdfast/internal/metrics"
)

// profileLabel is the label by which metrics tell profiles apart.
const profileLabel = "profile"

// disclose returns metrics for somebody who may know of some profiles: what was
// counted for others is counted together, under [metrics.Other]. Who may not use a
// profile is not told that it exists.
func disclose(list []metrics.Metric, known func(profile string) bool) []metrics.Metric {
	for i := range list {
		kept := make([]metrics.Sample, 0, len(list[i].Samples))
		at := map[string]int{}
		for _, s := range list[i].Samples {
			s.Labels = disclosed(s.Labels, known)
			key := strings.Join(s.Labels, "\x00")
			if first, there := at[key]; there {
				kept[first] = together(kept[first], s)
				continue
			}
			at[key] = len(kept)
			kept = append(kept, s)
		}
		list[i].Samples = kept
	}
	return list
}

// disclosed returns labels with the name of a profile that is not known left out.
func disclosed(labels []string, known func(string) bool) []string {
	for i := 0; i+1 < len(labels); i += 2 {
		if labels[i] == profileLabel && !known(labels[i+1]) {
			labels = slices.Clone(labels)
			labels[i+1] = metrics.Other
		}
	}
	return labels
}

// together returns the sum of two samples of one metric.
func together(a, b metrics.Sample) metrics.Sample {
	a.Value, a.Count, a.Sum = a.Value+b.Value, a.Count+b.Count, a.Sum+b.Sum
	a.Buckets = slices.Clone(a.Buckets)
	for i := range a.Buckets {
		if i < len(b.Buckets) { // of one metric they are the same
			a.Buckets[i].Count += b.Buckets[i].Count
		}
	}
	return a
}
