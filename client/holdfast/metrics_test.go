package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
	"holdfast/internal/metrics"
	"holdfast/internal/varlink"
)

// fakeBroker answers GetMetrics alone, at the path that it returns.
func fakeBroker(t *testing.T, registry *metrics.Registry) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "b.sock")
	listener, err := net.Listen("unix", path)
	check(t, err)
	ctx, stop := context.WithCancel(context.Background())
	service := &varlink.Service{Interfaces: []varlink.Interface{{
		Name: brokerwire.Interface, Description: brokerwire.Description(),
		Methods: map[string]varlink.Method{"GetMetrics": func(_ context.Context, call *varlink.Call) error {
			return call.Reply(brokerwire.GetMetricsReply{Metrics: registry.Snapshot()})
		}},
	}}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			service.ServeConn(ctx, conn)
		}
	}()
	t.Cleanup(func() { stop(); listener.Close(); <-done })
	return path
}

// counting is a stand-in agent and broker that have counted something.
func counting(t *testing.T) (*clienttest.Agent, command) {
	t.Helper()
	agent := clienttest.Start(t)
	agent.Metrics.Counter("holdfast_agent_requests_total", "Requests.", "method").Add(3, "Sign\"TLS")
	agent.Metrics.Histogram("holdfast_agent_queue_seconds", "Waiting.", []float64{0.1, 1}, "backend").Observe(0.5, "tpm")
	broker := metrics.New()
	broker.Gauge("holdfast_broker_open", "Open.").Set(2)
	t.Setenv("HOLDFAST_BROKER_SOCKET", fakeBroker(t, broker))
	return agent, command{socket: agent.Socket}
}

func TestMetricsAsOpenMetrics(t *testing.T) {
	_, c := counting(t)
	got := c.run("metrics")
	got.want(t, 0)
	const want = `# HELP holdfast_agent_queue_seconds Waiting.
# TYPE holdfast_agent_queue_seconds histogram
# UNIT holdfast_agent_queue_seconds seconds
holdfast_agent_queue_seconds_bucket{backend="tpm",le="0.1"} 0
holdfast_agent_queue_seconds_bucket{backend="tpm",le="1.0"} 1
holdfast_agent_queue_seconds_bucket{backend="tpm",le="+Inf"} 1
holdfast_agent_queue_seconds_sum{backend="tpm"} 0.5
holdfast_agent_queue_seconds_count{backend="tpm"} 1
# HELP holdfast_agent_requests Requests.
# TYPE holdfast_agent_requests counter
holdfast_agent_requests_total{method="Sign\"TLS"} 3.0
# HELP holdfast_broker_open Open.
# TYPE holdfast_broker_open gauge
holdfast_broker_open 2.0
# HELP holdfast_up 1 when the program answered, else 0.
# TYPE holdfast_up gauge
holdfast_up{program="agent"} 1.0
holdfast_up{program="broker"} 1.0
# EOF
`
	if got.stdout != want || got.stderr != "" {
		t.Errorf("got %s%s\nwant %s", got.stdout, got.stderr, want)
	}
	var reply brokerwire.GetMetricsReply
	check(t, json.Unmarshal([]byte(c.run("metrics", "--json").stdout), &reply))
	if len(reply.Metrics) != 4 {
		t.Errorf("--json: %d metrics, want 4", len(reply.Metrics))
	}
}

// TestMetricsTextfile: the file is what node_exporter reads, replaced whole, and
// nothing else is left in the directory.
func TestMetricsTextfile(t *testing.T) {
	_, c := counting(t)
	path := filepath.Join(t.TempDir(), "holdfast.prom")
	check(t, os.WriteFile(path, []byte("old\n"), 0o600))
	old, err := os.Open(path)
	check(t, err)
	defer old.Close()
	got := c.run("metrics", "--textfile", path)
	if got.want(t, 0); got.stdout != "" {
		t.Errorf("stdout: %q", got.stdout)
	}
	file, err := os.Open(path)
	check(t, err)
	defer file.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(file)
	check(t, err)
	requests := families["holdfast_agent_requests_total"]
	if len(families) != 4 || requests.GetMetric()[0].GetCounter().GetValue() != 3 {
		t.Errorf("the file has %v", families)
	}
	if info, err := file.Stat(); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the file's mode is %v, %v", info.Mode(), err)
	}
	before, err := old.Stat()
	check(t, err)
	if after, err := file.Stat(); err != nil || os.SameFile(before, after) {
		t.Error("the old file was written to, which a reader could have seen half done")
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
	c.run("metrics", "--textfile", "/nonexistent/holdfast.prom").want(t, 1, "the directory must exist")
	c.run("metrics", "--textfile", path, "--json").want(t, 2, "textfile")
}

func TestMetricsOfOneAlone(t *testing.T) {
	agent, c := counting(t)
	has := func(got result, words ...string) {
		t.Helper()
		got.want(t, 0)
		for _, word := range []string{"holdfast_agent_requests", "holdfast_broker_open", `program="agent"} 0`, `program="broker"} 0`} {
			if want := slices.Contains(words, word); strings.Contains(got.stdout, word) != want {
				t.Errorf("%q there: %t, want %t:\n%s", word, !want, want, got.stdout)
			}
		}
	}
	has(c.run("metrics", "--agent"), "holdfast_agent_requests")
	has(c.run("metrics", "--broker"), "holdfast_broker_open")
	has(c.run("metrics", "--agent", "--broker"), "holdfast_agent_requests", "holdfast_broker_open")

	agent.Fail(agentwire.GetMetrics, &fault.Error{Kind: fault.Denied, Message: "no"})
	c.run("metrics").want(t, 4, "no")
	agent.Fail(agentwire.GetMetrics, nil)

	t.Setenv("HOLDFAST_BROKER_SOCKET", filepath.Join(t.TempDir(), "none.sock"))
	alone := c.run("metrics")
	if !strings.HasPrefix(alone.stderr, "holdfast: notice: ") || !strings.Contains(alone.stderr, "none.sock") {
		t.Errorf("stderr: %q, want a notice that names the socket", alone.stderr)
	}
	has(alone, "holdfast_agent_requests", `program="broker"} 0`)
	c.run("metrics", "--broker").want(t, 3, "none.sock", "hint")

	agent.Stop()
	defer agent.Resume()
	got := c.run("metrics")
	if got.want(t, 3, "hint"); got.stdout != "" {
		t.Errorf("stdout: %q", got.stdout)
	}
	path := filepath.Join(t.TempDir(), "holdfast.prom")
	c.run("metrics", "--textfile", path).want(t, 3)
	text, err := os.ReadFile(path)
	check(t, err)
	if strings.Count(string(text), "} 0\n") != 2 {
		t.Errorf("the file does not say that nobody answered:\n%s", text)
	}
}

// Data from another program is checked before it is printed.
func TestStrangeMetricsAreRefused(t *testing.T) {
	for about, m := range map[string]metrics.Metric{
		"an odd label":   {Name: "a", Kind: "gauge", Samples: []metrics.Sample{{Labels: []string{"x"}}}},
		"no name":        {Kind: "gauge", Samples: []metrics.Sample{{}}},
		"a strange kind": {Name: "a", Kind: "summary", Samples: []metrics.Sample{{}}},
		"twice":          {Name: "a", Kind: "gauge", Samples: []metrics.Sample{{}, {}}},
		"a label twice":  {Name: "a", Kind: "gauge", Samples: []metrics.Sample{{Labels: []string{"x", "1", "x", "2"}}}},
		"a label's name": {Name: "a", Kind: "gauge", Samples: []metrics.Sample{{Labels: []string{"\xff", "1"}}}},
	} {
		var out strings.Builder
		a := &app{streams: streams{stdout: &out}}
		if err := a.printMetrics([]metrics.Metric{m}, &metricsOptions{}); err == nil || out.Len() > 0 {
			t.Errorf("%s: got %v and %q, want an error and nothing printed", about, err, out.String())
		}
	}
}
