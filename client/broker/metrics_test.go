package broker

import (
	"reflect"
	"testing"

	"holdfast/internal/metrics"
)

func TestRedactProfiles(t *testing.T) {
	r := metrics.New()
	sent := r.Counter("sent_total", "Sent.", "profile", "outcome")
	took := r.Histogram("took_seconds", "Took.", []float64{1, 10}, "profile")
	all := r.Counter("all_total", "All.")
	all.Add(3)
	for i, name := range []string{"mine", "secret", "hidden"} {
		sent.Add(float64(i+1), name, "ok")
		sent.Add(1, name, "failed")
		took.Observe(float64(i*4), name)
	}
	samples := map[string][]metrics.Sample{}
	for _, m := range redactProfiles(r.Snapshot(), func(name string) bool { return name == "mine" }) {
		samples[m.Name] = m.Samples
	}
	want := map[string][]metrics.Sample{
		"all_total": {{Labels: []string{}, Value: 3}},
		"sent_total": {
			{Labels: []string{"profile", "other", "outcome", "failed"}, Value: 2}, {Labels: []string{"profile", "other", "outcome", "ok"}, Value: 5},
			{Labels: []string{"profile", "mine", "outcome", "failed"}, Value: 1}, {Labels: []string{"profile", "mine", "outcome", "ok"}, Value: 1},
		},
		"took_seconds": {
			{Labels: []string{"profile", "other"}, Count: 2, Sum: 12, Buckets: []metrics.Bucket{{UpTo: 1}, {UpTo: 10, Count: 2}}},
			{Labels: []string{"profile", "mine"}, Count: 1, Buckets: []metrics.Bucket{{UpTo: 1, Count: 1}, {UpTo: 10, Count: 1}}},
		},
	}
	for name, w := range want {
		if !reflect.DeepEqual(samples[name], w) {
			t.Errorf("%s: got %+v\nwant %+v", name, samples[name], w)
		}
	}
	if again := redactProfiles(r.Snapshot(), func(string) bool { return true }); !reflect.DeepEqual(again, r.Snapshot()) {
		t.Error("a caller that knows every profile sees something else")
	}
}
