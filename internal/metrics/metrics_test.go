package metrics_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"holdfast/internal/metrics"
)

// only returns the one metric of a registry.
func only(t *testing.T, r *metrics.Registry) metrics.Metric {
	t.Helper()
	list := r.Snapshot()
	if len(list) != 1 {
		t.Fatalf("%d metrics, want 1", len(list))
	}
	return list[0]
}

func TestEveryKind(t *testing.T) {
	r := metrics.New()
	requests := r.Counter("requests_total", "Requests.", "method", "outcome")
	requests.Add(1, "Sign", "ok")
	requests.Add(2, "Sign", "ok")
	requests.Add(1, "List", "denied")
	open := r.Gauge("open", "Open.")
	open.Set(5)
	open.Add(-2)
	wait := r.Histogram("wait_seconds", "Wait.", []float64{0.1, 1}, "backend")
	for _, v := range []float64{0.05, 0.1, 0.5, 7} {
		wait.Observe(v, "tpm")
	}

	got, err := json.Marshal(r.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	const want = `[` +
		`{"name":"open","help":"Open.","kind":"gauge","samples":[{"labels":[],"value":3}]},` +
		`{"name":"requests_total","help":"Requests.","kind":"counter","samples":[` +
		`{"labels":["method","List","outcome","denied"],"value":1},` +
		`{"labels":["method","Sign","outcome","ok"],"value":3}]},` +
		`{"name":"wait_seconds","help":"Wait.","kind":"histogram","unit":"seconds","samples":[` +
		`{"labels":["backend","tpm"],"count":4,"sum":7.65,"buckets":[{"upTo":0.1,"count":2},{"upTo":1,"count":3}]}]}]`
	if string(got) != want {
		t.Errorf("snapshot:\n%s\nwant:\n%s", got, want)
	}
}

func TestBeforeAnythingHappened(t *testing.T) {
	r := metrics.New()
	if got, err := json.Marshal(r.Snapshot()); err != nil || string(got) != "[]" {
		t.Errorf("an empty registry is %s, %v", got, err)
	}
	r.Counter("a_total", "A.")
	if m := only(t, r); len(m.Samples) != 1 || m.Samples[0].Value != 0 {
		t.Errorf("a counter without labels starts as %+v, want one sample of 0", m.Samples)
	}
	r = metrics.New()
	r.Counter("b_total", "B.", "label")
	if m := only(t, r); m.Samples == nil || len(m.Samples) != 0 {
		t.Errorf("a counter with labels starts as %#v, want no sample", m.Samples)
	}
}

func TestUnits(t *testing.T) {
	for name, want := range map[string]string{
		"wait_seconds": "seconds", "cpu_seconds_total": "seconds", "sent_bytes_total": "bytes",
		"requests_total": "", "milliseconds": "",
	} {
		r := metrics.New()
		r.Gauge(name, "")
		if got := only(t, r).Unit; got != want {
			t.Errorf("the unit of %s is %q, want %q", name, got, want)
		}
	}
}

// TestOnlyFiniteNumbers: JSON has no infinity, and one such number would cost
// the whole reply.
func TestOnlyFiniteNumbers(t *testing.T) {
	r := metrics.New()
	c, g := r.Counter("c_total", "C."), r.Gauge("g", "G.")
	h := r.Histogram("h", "H.", []float64{1, math.Inf(1), math.NaN(), math.Inf(-1), 0.5, 1})
	for _, v := range []float64{1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.MaxFloat64} {
		c.Add(v)
		g.Set(v)
		g.Add(v)
		h.Observe(v)
	}
	c.Add(-1)
	list := r.Snapshot()
	if _, err := json.Marshal(list); err != nil {
		t.Error(err)
	}
	if got := list[0].Samples[0].Value; got < 1 || !(got <= math.MaxFloat64) {
		t.Errorf("the counter is at %v", got)
	}
	hist := list[2].Samples[0]
	want := []metrics.Bucket{{UpTo: 0.5}, {UpTo: 1, Count: 1}}
	if hist.Count != 3 || !slices.Equal(hist.Buckets, want) {
		t.Errorf("the histogram has %d in %v, want 3 in %v", hist.Count, hist.Buckets, want)
	}
}

func TestACounterOnlyGrows(t *testing.T) {
	r := metrics.New()
	c := r.Counter("c_total", "C.")
	c.Add(2)
	c.Add(-1)
	if got := only(t, r).Samples[0].Value; got != 2 {
		t.Errorf("the counter is at %v, want 2", got)
	}
}

// TestSetsAreBounded: what callers do must not make the agent grow.
func TestSetsAreBounded(t *testing.T) {
	r := metrics.New()
	c := r.Counter("c_total", "C.", "a", "b")
	const more = 50
	for range 2 {
		for i := range metrics.MaxSets + more {
			c.Add(1, fmt.Sprint(i), "x")
		}
	}
	c.Add(1, "one label too few")
	c.Add(1, "one", "too", "many")

	m := only(t, r)
	if got, want := len(m.Samples), metrics.MaxSets+1; got != want {
		t.Errorf("%d sets, want %d", got, want)
	}
	var sum, other float64
	for _, s := range m.Samples {
		sum += s.Value
		if slices.Equal(s.Labels, []string{"a", metrics.Other, "b", metrics.Other}) {
			other = s.Value
		}
	}
	if want := 2.0*(metrics.MaxSets+more) + 2; sum != want {
		t.Errorf("%v counted in all, want %v", sum, want)
	}
	if want := 2.0*more + 2; other != want {
		t.Errorf("%v counted as other, want %v", other, want)
	}
}

func TestValuesAreBoundedText(t *testing.T) {
	r := metrics.New()
	c := r.Counter("c_total", "C.", "a")
	c.Add(1, strings.Repeat("x", 5000))
	c.Add(1, strings.Repeat("x", metrics.MaxValue))
	c.Add(1, "\xff")
	m := only(t, r)
	if len(m.Samples) != 2 || m.Samples[0].Labels[1] != "?" || m.Samples[1].Value != 2 || len(m.Samples[1].Labels[1]) != metrics.MaxValue {
		t.Errorf("samples: %+v", m.Samples)
	}
}

// TestSetsAreNotMixedUp: values that are the same when strung together are
// different sets.
func TestSetsAreNotMixedUp(t *testing.T) {
	r := metrics.New()
	c := r.Counter("c_total", "C.", "a", "b")
	for _, set := range [][]string{{"ab", "c"}, {"a", "bc"}, {"", "abc"}, {"abc", ""}, {"", ""}} {
		c.Add(1, set...)
	}
	if m := only(t, r); len(m.Samples) != 5 {
		t.Errorf("%d sets, want 5: %+v", len(m.Samples), m.Samples)
	}
}

func TestMadeTwice(t *testing.T) {
	r := metrics.New()
	r.Counter("c_total", "C.", "a").Add(1, "x")
	r.Counter("c_total", "C.", "a").Add(1, "x")
	if got := only(t, r).Samples[0].Value; got != 2 {
		t.Errorf("the counter is at %v, want 2", got)
	}
	for name, make := range map[string]func(){
		"another kind": func() { r.Gauge("c_total", "C.", "a") },
		"other labels": func() { r.Counter("c_total", "C.", "b") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s under the same name went through", name)
				}
			}()
			make()
		}()
	}
}

func TestConcurrently(t *testing.T) {
	r := metrics.New()
	const workers, each = 8, 1000
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			c := r.Counter("c_total", "C.", "worker")
			h := r.Histogram("h", "H.", []float64{1}, "all")
			for i := range each {
				c.Add(1, fmt.Sprint(w))
				h.Observe(float64(i%3), "all")
				if i%100 == 0 {
					r.Snapshot()
				}
			}
		})
	}
	group.Wait()
	list := r.Snapshot()
	for _, s := range list[0].Samples {
		if s.Value != each {
			t.Errorf("%v counts %v, want %d", s.Labels, s.Value, each)
		}
	}
	if got := list[1].Samples[0].Count; got != workers*each {
		t.Errorf("%d observed, want %d", got, workers*each)
	}
}

func TestASeenSetCostsNoAllocation(t *testing.T) {
	r := metrics.New()
	c := r.Counter("c_total", "C.", "method", "outcome")
	h := r.Histogram("h_seconds", "H.", []float64{0.1, 1, 10}, "backend")
	if n := testing.AllocsPerRun(100, func() {
		c.Add(1, "SignTLSClient", "ok")
		h.Observe(0.02, "tpm")
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	c := metrics.New().Counter("c_total", "C.", "method", "outcome")
	for b.Loop() {
		c.Add(1, "SignTLSClient", "ok")
	}
}
