package agent_test

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/metrics"
	"holdfast/internal/policy"
	"holdfast/internal/varlink"
)

// metrics returns the samples of GetMetrics by the metric's name and the
// values of its labels, as in requests_total SignTLSClient ok.
func (r *rig) metrics() map[string]metrics.Sample {
	r.t.Helper()
	all, err := r.tryMetrics()
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

func (r *rig) tryMetrics() (map[string]metrics.Sample, error) {
	var reply agentwire.GetMetricsReply
	if err := r.call(agentwire.GetMetrics, agentwire.Empty{}, &reply); err != nil {
		return nil, err
	}
	all := map[string]metrics.Sample{}
	for _, m := range reply.Metrics {
		for _, s := range m.Samples {
			name := strings.TrimPrefix(m.Name, "holdfast_agent_")
			for i := 1; i < len(s.Labels); i += 2 {
				name += " " + s.Labels[i]
			}
			all[name] = s
		}
	}
	return all, nil
}

// waitForMetric returns once the sample has the value.
func (r *rig) waitForMetric(name string, want float64) {
	r.t.Helper()
	var got float64
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var all map[string]metrics.Sample
		if all, err = r.tryMetrics(); err == nil && all[name].Value == want {
			return
		}
		got = all[name].Value
	}
	r.t.Fatalf("%s stays at %v (%v), want %v", name, got, err, want)
}

func TestMetricsCountWhatHappened(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient)
	r.create("pin", keys.TLSClient, func(p *agentwire.CreateKeyParameters) { p.PIN = []byte("right-pin") })
	for range 3 {
		if _, err := r.signClient("alice"); err != nil {
			t.Fatal(err)
		}
	}
	_, err := r.signClient("nosuch")
	wantKind(t, err, fault.Denied)
	_, err = r.signClient("pin")
	wantKind(t, err, fault.PINRequired)
	unlock := func(pin string) error {
		return r.call(agentwire.UnlockKey, agentwire.UnlockKeyParameters{Name: "pin", PIN: []byte(pin)}, &agentwire.UnlockKeyReply{})
	}
	if err := unlock("wrong-pin"); err == nil {
		t.Fatal("a wrong PIN unlocked")
	}
	if err := unlock("right-pin"); err != nil {
		t.Fatal(err)
	}
	if err := r.dial().Call(t.Context(), agentwire.GetKey, map[string]string{"nome": "alice"}, &agentwire.KeyReply{}); err == nil {
		t.Fatal("a strange parameter was taken")
	}

	got := r.metrics()
	for name, want := range map[string]float64{
		"requests_total SignTLSClient ok":           3,
		"requests_total SignTLSClient denied":       1,
		"requests_total SignTLSClient pin-required": 1,
		"requests_total CreateKey ok":               2,
		"requests_total GetKey bad-request":         1,
		"decisions_total sign-tls-client allow":     3,
		"decisions_total sign-tls-client deny":      2,
		"decisions_total create allow":              2,
		"signatures_total tls-client memory ok":     3,
		"pin_tries_total memory ok":                 1,
		"watchers":                                  0,
		"queue_waiting memory":                      0,
		"info test":                                 1,
	} {
		if s, ok := got[name]; !ok || s.Value != want {
			t.Errorf("%s is %v (there: %t), want %v", name, s.Value, ok, want)
		}
	}
	r.waitForMetric("connections", 2) // the one that asks, and that of the strange parameter
	wrong := 0.0
	for name, s := range got {
		if strings.HasPrefix(name, "pin_tries_total") {
			wrong += s.Value
		}
	}
	if wrong != 2 {
		t.Errorf("%v PIN tries are counted, want 2", wrong)
	}
	if s := got["start_time_seconds"]; time.Since(time.UnixMilli(int64(s.Value*1000))) > time.Hour {
		t.Errorf("the agent says it started at %v", s.Value)
	}
	// Creating signs for a trial, so the device had more turns than it signed.
	queue, device := got["queue_seconds memory"], got["device_seconds memory"]
	if queue.Count < 8 || queue.Count != device.Count {
		t.Errorf("%d waits and %d times of the device are counted, want the same number, at least 8", queue.Count, device.Count)
	}
}

// TestQueueAndDeviceTimeAreApart: one caller holds the device for a while, another
// waits as long for its turn and is then done at once.
func TestQueueAndDeviceTimeAreApart(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient)
	before := r.metrics()
	release := r.memory.Block()
	results := make(chan error, 2)
	sign := func() { _, err := r.signClient("alice"); results <- err }
	go sign()
	r.memory.WaitBlocked()
	go sign()
	r.waitForMetric("queue_waiting memory", 1)
	const pause = 60 * time.Millisecond
	held := time.NewTimer(pause)
	<-held.C
	release()
	for range 2 {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	after := r.metrics()
	for _, name := range []string{"queue_seconds memory", "device_seconds memory"} {
		count, sum := after[name].Count-before[name].Count, after[name].Sum-before[name].Sum
		if count != 2 || sum < pause.Seconds() || sum > 1.9*pause.Seconds()+1 {
			t.Errorf("%s: %d observations of %v s together, want 2 of which one took %v", name, count, sum, pause)
		}
		slow := slower(after[name], 0.05) - slower(before[name], 0.05)
		if slow != 1 {
			t.Errorf("%s: %d observations above 50 ms, want 1", name, slow)
		}
	}
}

// slower is how many observations took longer than a bound.
func slower(s metrics.Sample, bound float64) uint64 {
	for _, b := range s.Buckets {
		if b.UpTo == bound {
			return s.Count - b.Count
		}
	}
	return s.Count
}

// A wait that ends because the caller left is observed as a wait, and not as device time.
func TestAbandonedWaitsAreObserved(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient)
	before := r.metrics()
	release := r.memory.Block()
	result := make(chan error, 1)
	go func() { _, err := r.signClient("alice"); result <- err }()
	r.memory.WaitBlocked()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	p := agentwire.SignTLSClientParameters{Key: "alice", Scheme: string(keys.ECDSAP256SHA256), Message: tls13("client")}
	if err := r.dial().Call(ctx, agentwire.SignTLSClient, p, &agentwire.SignReply{}); err == nil {
		t.Fatal("signed while the device was busy")
	}
	r.waitForMetric("requests_total SignTLSClient gone", 1)
	release()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	after := r.metrics()
	queue := after["queue_seconds memory"].Count - before["queue_seconds memory"].Count
	device := after["device_seconds memory"].Count - before["device_seconds memory"].Count
	if queue != 2 || device != 1 {
		t.Errorf("%d waits and %d times of the device, want 2 and 1", queue, device)
	}
}

func TestMetricsAskThePolicy(t *testing.T) {
	r := newRig(t, func(r *rig) {
		r.policy = func() (*policy.Policy, error) {
			return policy.Parse("policy.yaml", []byte("version: 1\nrules:\n- deny: [status]\n  uids: [0]\n- allow: [all]\n  uids: [0]\n  owner: self\n"))
		}
	})
	wantKind(t, r.call(agentwire.GetMetrics, agentwire.Empty{}, &agentwire.GetMetricsReply{}), fault.Denied)
}

// The metrics hold no name of a key, of a user or of a file.
func TestMetricsNameNoUser(t *testing.T) {
	r := newRig(t)
	const name = "zanzibar"
	r.create(name, keys.TLSClient)
	if _, err := r.signClient(name); err != nil {
		t.Fatal(err)
	}
	r.signClient("timbuktu")
	var reply agentwire.GetMetricsReply
	if err := r.call(agentwire.GetMetrics, agentwire.Empty{}, &reply); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(reply)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{name, "timbuktu", r.dir, "uid"} {
		if strings.Contains(string(text), word) {
			t.Errorf("the metrics have the word %q", word)
		}
	}
	if len(text) > varlink.MaxMessage/4 {
		t.Errorf("the metrics have %d bytes", len(text))
	}
}

func TestWatchersAndRefusedConnectionsAreCounted(t *testing.T) {
	r := newRig(t, func(r *rig) { r.options.Limits.ConnectionsPerUID = 3 })
	watch := r.dial()
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		over <- watch.CallMore(ctx, agentwire.Watch, agentwire.Empty{}, func(json.RawMessage, bool) error { return nil })
	}()
	r.waitForMetric("watchers", 1)
	cancel()
	<-over
	watch.Close()
	r.waitForMetric("watchers", 0)

	held := []*varlink.Conn{r.dial(), r.dial()}
	for _, c := range held {
		if err := c.Call(t.Context(), agentwire.ListKeys, agentwire.ListKeysParameters{}, &agentwire.ListKeysReply{}); err != nil {
			t.Fatal(err)
		}
	}
	closed := make(chan struct{}, 2) // which of two more is one too many, the agent's goroutines decide
	var more [2]net.Conn
	for i := range more {
		c, err := net.Dial("unix", r.socket)
		if err != nil {
			t.Fatal(err)
		}
		more[i] = c
		go func() { c.Read(make([]byte, 1)); closed <- struct{}{} }()
	}
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		t.Fatal("none of the two was closed")
	}
	more[0].Close()
	more[1].Close()
	<-closed
	held[0].Close()
	r.waitForMetric("connections", 2)
	if got := r.metrics()["connections_refused_total limit"].Value; got < 1 {
		t.Errorf("%v connections were refused for the limit, want at least 1", got)
	}
}
