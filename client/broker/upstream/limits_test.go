package upstream_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/client/broker/ticket"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
)

// Idle pools are evicted, those in use are not.
func TestPoolsAreBounded(t *testing.T) {
	r := newRig(t, nil)
	r.pools.Limit(3, 5, 100)
	named := func(uid uint32, name string) http.RoundTripper {
		p := *r.profile
		p.Name = name
		return r.pools.Transport(ticket.Process{UID: uid, PID: 1}, &p)
	}
	w := watch(t, named(1, "first"))
	for i := range 10 {
		get(t, named(1, fmt.Sprint("p", i)), "/who")
	}
	if current, _ := r.pools.Len(); current != 3 {
		t.Errorf("%d pools of one uid, want 3", current)
	}
	for uid := range uint32(10) {
		get(t, named(100+uid, "p"), "/who")
	}
	if current, _ := r.pools.Len(); current != 5 {
		t.Errorf("%d pools, want 5", current)
	}
	watch(t, named(1, "second"))
	watch(t, named(1, "third"))
	if _, err := send(named(1, "fourth"), "GET", "/who", nil); err == nil || !strings.Contains(err.Error(), "requests of uid 1 in progress (3)") {
		t.Errorf("got %v", err)
	}
	close(r.server.stop)
	w.expect(t, "end\n")
	eventually(t, func() string {
		if _, all := r.pools.Len(); all > 5 {
			return fmt.Sprintf("%d pools in all", all)
		}
		return ""
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	r := newRig(t, func(s *server) { s.EnableHTTP2 = false })
	r.pools.Limit(10, 10, 2)
	watch(t, r.transport())
	watch(t, r.transport())
	for _, tr := range []http.RoundTripper{r.transport(), r.pools.Upgrade(me(), r.profile)} {
		if _, err := send(tr, "GET", "/who", nil); err == nil || !strings.Contains(err.Error(), "are open (2)") {
			t.Errorf("got %v", err)
		}
	}
}

// A handshake waits longer for a user than for a device.
func TestTimeoutForAUser(t *testing.T) {
	r := newRig(t, nil)
	r.pools.Wait(time.Second, 20*time.Millisecond, 20*time.Second)
	r.agent.Change("alice", func(k *agentwire.Key) { k.PIN = true })
	r.server.TLS.GetConfigForClient = nil
	slow := listenSlowly(t, strings.TrimPrefix(r.server.URL, "https://"), 100*time.Millisecond, 0)
	r.profile.Cluster.Server = slow
	get(t, r.transport(), "/who")
	r.agent.Change("alice", func(k *agentwire.Key) { k.PIN = false })
	r.pools.Drop("")
	if e := r.failure(t); e.Class != "timeout" {
		t.Errorf("got %s: %s", e.Class, e.Fault.Message)
	}
}

// The agent is told for whom it signs.
func TestOnBehalfOf(t *testing.T) {
	r := newRig(t, nil)
	who := ticket.Process{UID: 4711, PID: 42, Start: 99, Unit: "kubelet.service"}
	get(t, r.pools.Transport(who, r.profile), "/who")
	upgraded(t, r.pools.Upgrade(who, r.profile))
	calls := r.agent.Calls(agentwire.SignTLSClient)
	for _, c := range calls {
		if !strings.Contains(string(c.Parameters), `"onBehalfOf":{"uid":4711,"pid":42,"start":99,"unit":"kubelet.service"}`) {
			t.Errorf("the agent was told %s", c.Parameters)
		}
	}
	if len(calls) != 2 {
		t.Errorf("%d signatures", len(calls))
	}
}

func TestMetrics(t *testing.T) {
	r := newRig(t, nil)
	get(t, r.transport(), "/who")
	for range 2 {
		upgraded(t, r.pools.Upgrade(me(), r.profile)).body.Close()
	}
	r.connections(t, 1)
	r.pools.Drop("")
	r.agent.Fail(agentwire.SignTLSClient, &fault.Error{Kind: fault.DeviceLocked, Message: "locked"})
	r.failure(t)
	r.connections(t, 0)
	got := map[string]float64{}
	for _, m := range r.metrics.Snapshot() {
		for _, s := range m.Samples {
			got[m.Name+" "+strings.Join(s.Labels, " ")] = s.Value + float64(s.Count)
		}
	}
	for name, want := range map[string]float64{
		"holdfast_broker_upstream_handshakes_total profile prod outcome ok":      2,
		"holdfast_broker_upstream_handshakes_total profile prod outcome resumed": 1,
		"holdfast_broker_upstream_handshakes_total profile prod outcome key":     1,
		"holdfast_broker_upstream_handshake_seconds profile prod":                4,
		"holdfast_broker_upstream_connections profile prod":                      0,
		"holdfast_broker_upstream_signatures_total profile prod":                 2,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v; all: %v", name, got[name], want, got)
		}
	}
}
