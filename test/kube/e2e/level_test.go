package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/client/profile"
	"holdfast/test/daemon"
	"holdfast/test/kube"
)

// runs is how many plugin runs the service level is measured with.
var runs = flag.Int("runs", 10_000, "plugin runs of the service level test; at least 10000")

// KEP-541's service level: of all plugin runs, over restarts of the agent, the
// broker and the API server and over rotations, at most one in ten thousand
// fails.
func TestServiceLevel(t *testing.T) {
	plane := kube.Start(t, kube.Options{Controllers: true})
	if err := prepare(plane); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, plane, alice, withNode(t))
	var done, failed atomic.Int64
	var faults sync.Map
	modes := []string{profile.ModeProxy, profile.ModeToken, profile.ModeCertificate}
	work := make(chan int)
	var workers sync.WaitGroup
	for range 6 {
		workers.Go(func() {
			for i := range work {
				mode := modes[i%len(modes)]
				if fault := r.once(t, mode); fault != "" {
					failed.Add(1)
					faults.Store(fmt.Sprintf("run %d, %s", i, mode), fault)
				}
				done.Add(1)
			}
		})
	}
	started := time.Now()
	var going sync.WaitGroup // what the events have begun
	events := r.events(t, &going)
	for i := range *runs {
		// An event after each tenth of the runs but the last, while they go on.
		if i > 0 && i%(*runs/10) == 0 && i/(*runs/10) < 10 {
			events[(i/(*runs/10)-1)%len(events)]()
		}
		work <- i
	}
	close(work)
	workers.Wait()
	going.Wait()
	t.Logf("%d runs in %v, %d failed", done.Load(), time.Since(started), failed.Load())
	if allowed := int64(*runs / 10_000); failed.Load() > allowed {
		faults.Range(func(run, fault any) bool { t.Errorf("%s: %s", run, fault); return true })
		t.Errorf("%d of %d runs failed, want at most %d", failed.Load(), *runs, allowed)
	}
}

// events are what happens during the runs. Each returns while what it has begun
// may still be going on.
func (r *rig) events(t *testing.T, going *sync.WaitGroup) []func() {
	restartServer := func() {
		r.plane.StopAPIServer()
		going.Go(func() {
			if err := r.plane.StartAPIServer(); err != nil {
				t.Errorf("restart the API server: %v", err)
			}
		})
	}
	rotate := func() { r.renew(t, alice); r.forget(t) }
	restartAgent := func() {
		r.agent.Stop()
		r.agent = daemon.Start(t, daemon.Options{Dir: r.agent.Dir, Device: r.tpm.Device()})
	}
	restartBroker := func() {
		r.broker.Stop()
		r.broker = daemon.StartBroker(t, daemon.BrokerOptions{Dir: r.broker.Dir, Agent: r.agent})
	}
	return []func(){restartAgent, restartBroker, rotate, restartServer}
}

// once runs the plugin and returns what is wrong with its answer.
func (r *rig) once(t testing.TB, mode string) string {
	name := "prod"
	if mode == profile.ModeCertificate {
		name = "node"
	}
	o := run(r.plugin(t, name, mode, r.cluster()))
	if o.code != 0 {
		return fmt.Sprintf("exit %d: %s", o.code, o.stderr)
	}
	var answer struct{ Status credential }
	if err := json.NewDecoder(strings.NewReader(o.stdout)).Decode(&answer); err != nil {
		return err.Error()
	}
	if !answer.Status.ExpirationTimestamp.After(time.Now()) {
		return "the credential is over"
	}
	if (answer.Status.Token == "") == (answer.Status.ClientKeyData == "") {
		return "neither a token nor a certificate"
	}
	return ""
}
