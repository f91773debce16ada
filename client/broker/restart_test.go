package broker_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"holdfast/test/daemon"
	"holdfast/test/pace"
)

// restart ends the broker, and starts the next one in its place.
func (r *rig) restart(m *daemon.Manager, end func()) {
	r.t.Helper()
	end()
	r.options.Dir, r.options.Profiles = r.broker.Dir, nil
	r.broker = daemon.StartBroker(r.t, m.Passing(r.options))
}

// A restart, orderly or not, refuses no connection while a watch is open, and the
// next broker accepts the ticket.
func TestRestartWithAnOpenWatch(t *testing.T) {
	for name, end := range map[string]func(*daemon.Broker){
		"TERM": func(b *daemon.Broker) { b.Stop() },
		"KILL": func(b *daemon.Broker) { b.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			m := daemon.NewManager(t)
			r := newRig(t, func(r *rig) { r.options = m.Passing(r.options) })
			m.WaitKept(1)
			s, ticket := r.broker.GetStatus(), r.ticket("prod")
			_, watch := r.get("prod", ticket, "/watch?watch=true")
			began := time.Now()
			r.restart(m, func() {
				end(r.broker)
				conn, err := net.Dial("tcp", s.Endpoint.Address)
				if err != nil {
					t.Fatalf("while no broker runs: %v", err)
				}
				conn.Close()
			})
			if line, _ := r.get("prod", ticket, "/whoami"); !strings.HasPrefix(line, "alice ") {
				t.Errorf("the next broker: got %s", line)
			}
			if took := time.Since(began); pace.Over(t, took, time.Second) {
				t.Errorf("the restart took %v", took)
			}
			if _, err := io.Copy(io.Discard, watch.Body); (err == nil) != (name == "TERM") {
				t.Errorf("the watch ended with %v", err)
			}
			if after := r.broker.GetStatus().Endpoint; after != s.Endpoint {
				t.Errorf("got %+v, want %+v", after, s.Endpoint)
			}
		})
	}
}

// Without a service manager the port is closed only until the next broker runs.
func TestRestartWithoutAManager(t *testing.T) {
	r := newRig(t)
	ticket := r.ticket("prod")
	_, watch := r.get("prod", ticket, "/watch?watch=true")
	began := time.Now()
	r.broker.Stop()
	if took := time.Since(began); pace.Over(t, took, time.Second) {
		t.Errorf("the stop took %v", took)
	}
	if _, err := io.Copy(io.Discard, watch.Body); err != nil {
		t.Errorf("the watch: %v", err)
	}
	r.options.Dir, r.options.Profiles = r.broker.Dir, nil
	r.broker = daemon.StartBroker(t, r.options)
	if line, _ := r.get("prod", ticket, "/whoami"); !strings.HasPrefix(line, "alice ") {
		t.Errorf("got %s", line)
	}
}
