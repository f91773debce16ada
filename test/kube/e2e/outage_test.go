package e2e

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/client/profile"
	"holdfast/test/kube"
	"holdfast/test/pace"
)

// While the API server is down, the broker does not hammer where it was, however
// many ask; when it is back, they are answered.
func TestMintDuringOutage(t *testing.T) {
	plane := kube.Start(t, kube.Options{}) // no controllers: they would connect too
	if err := prepare(plane); err != nil {
		t.Fatal(err)
	}
	serviceAccount(t, plane, "default", "default", "view")
	r := newRig(t, plane, alice)
	plane.StopAPIServer()
	l, err := net.Listen("tcp", strings.TrimPrefix(plane.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	var tries atomic.Int32
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			tries.Add(1)
			_ = conn.Close()
		}
	}()
	const outage = 4 * time.Second
	var running sync.WaitGroup
	var asked atomic.Int32
	started := time.Now()
	for range 20 {
		running.Go(func() {
			for time.Since(started) < outage {
				asked.Add(1)
				if o := run(r.plugin(t, "prod", profile.ModeToken, r.cluster())); o.code == 0 || o.stdout != "" || !strings.Contains(o.stderr, "hint: ") {
					t.Errorf("during the outage: %+v", o)
					return
				}
			}
		})
	}
	running.Wait()
	_ = l.Close()
	if n := tries.Load(); n == 0 || n > 8 {
		t.Errorf("%d runs made %d connections in %v, want a few", asked.Load(), n, time.Since(started))
	}
	if took := time.Since(started); pace.Over(t, took, outage+12*time.Second) {
		t.Errorf("a run took %v", took-outage)
	}
	if err := plane.StartAPIServer(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "after the outage", func() string {
		o := run(r.plugin(t, "prod", profile.ModeToken, r.cluster()))
		return strings.TrimSuffix(fmt.Sprintf("%s%d", o.stderr, o.code), "0")
	})
}
