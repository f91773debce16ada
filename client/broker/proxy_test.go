package broker_test

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
	"holdfast/test/daemon"
)

func TestRestartKeepsTheEndpoint(t *testing.T) {
	r := newRig(t)
	before := r.broker.GetStatus().Endpoint
	if code := r.broker.Stop(); code != 0 {
		t.Fatalf("got status %d\n%s", code, r.broker.Log())
	}
	r.options.Dir, r.options.Profiles = r.broker.Dir, nil
	r.broker = daemon.StartBroker(t, r.options)
	if after := r.broker.GetStatus().Endpoint; after != before {
		t.Errorf("got %+v, want %+v", after, before)
	}
	if line, _ := r.get("prod", r.ticket("prod"), "/whoami"); !strings.HasPrefix(line, "alice ") {
		t.Errorf("got %s", line)
	}
}

func TestPortTaken(t *testing.T) {
	squatter := taken(t)
	address := squatter.Addr().String()
	r := newRig(t, func(r *rig) { r.options.Args = append(r.options.Args, "--listen", address) })
	_, err := r.plugin(brokerwire.GetCredentialParameters{Profile: "prod", Mode: brokerwire.ModeProxy})
	e, ok := fault.AsError(err)
	if !ok || e.Kind != fault.Busy || !strings.Contains(e.Message, address) || !strings.Contains(e.Hint, "--listen") {
		t.Errorf("got %v, want the address and the hint", err)
	}
	if s := r.broker.GetStatus(); len(s.Notices) != 1 || !strings.Contains(s.Notices[0].Message, address) {
		t.Errorf("notices: %+v", s.Notices)
	}
	if p := r.broker.GetStatus().Profiles[0]; !strings.Contains(p.Fault, address) || !strings.Contains(p.Hint, "--listen") {
		t.Errorf("the profile's fault: %q, %q", p.Fault, p.Hint)
	}
	squatter.Close()
	if line, _ := r.get("prod", r.ticket("prod"), "/whoami"); !strings.HasPrefix(line, "alice ") {
		t.Errorf("after the squatter: got %s", line)
	}
	if s := r.broker.GetStatus(); len(s.Notices) != 0 || s.Endpoint.Address != address {
		t.Errorf("after the squatter: %+v", s)
	}
}

func TestDedicatedPort(t *testing.T) {
	l := taken(t)
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	r := newRig(t, func(r *rig) { r.options.Profiles[0].Proxy.Port = port })
	s := r.broker.GetStatus()
	if s.Profiles[0].Address != l.Addr().String() || s.Endpoint.Address == l.Addr().String() {
		t.Errorf("addresses: %s, %s", s.Profiles[0].Address, s.Endpoint.Address)
	}
	line, _ := r.getAt(s.Profiles[0].Address, s.Endpoint.Certificate, "127.0.0.1", r.ticket("prod"), "/whoami")
	if !strings.HasPrefix(line, "alice ") {
		t.Errorf("got %s", line)
	}
	p := r.profile("prod")
	r.broker.WriteProfile(p)
	r.broker.Signal(syscall.SIGHUP)
	r.broker.WaitLog("reloaded", 1)
	if conn, err := net.Dial("tcp", l.Addr().String()); err == nil {
		conn.Close()
		t.Error("the port is still open that no profile wants")
	}
}

// A profile has an address of its own, where no name is needed. It stays over a restart.
func TestAddressOfAProfile(t *testing.T) {
	r := newRig(t)
	before := r.broker.GetStatus().Profiles[0]
	line, _ := r.getAt(before.Address, before.Certificate, "", r.ticket("prod"), "/whoami")
	if !strings.HasPrefix(line, "alice ") {
		t.Errorf("got %s", line)
	}
	r.broker.Stop()
	r.options.Dir, r.options.Profiles = r.broker.Dir, nil
	r.broker = daemon.StartBroker(t, r.options)
	if after := r.broker.GetStatus().Profiles[0]; after.Address != before.Address || after.Certificate != before.Certificate {
		t.Errorf("got %s, want %s, with the same certificate", after.Address, before.Address)
	}
}

// Where one listener for all addresses is refused, here because another program has the
// port at another address, there is one for each.
func TestOneListenerForEachAddress(t *testing.T) {
	other, err := net.Listen("tcp4", "127.0.0.77:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	_, port, _ := net.SplitHostPort(other.Addr().String())
	r := newRig(t, func(r *rig) { r.options.Args = append(r.options.Args, "--listen", "127.0.0.1:"+port) })
	p := r.broker.GetStatus().Profiles[0]
	if p.Address != "127.84.175.150:"+port || p.TLSServerName != "" {
		t.Errorf("got %s, %q", p.Address, p.TLSServerName)
	}
	ticket := r.ticket("prod")
	if line, _ := r.getAt(p.Address, p.Certificate, "", ticket, "/whoami"); !strings.HasPrefix(line, "alice ") {
		t.Errorf("at its own address: got %s", line)
	}
	if line, _ := r.get("prod", ticket, "/whoami"); !strings.HasPrefix(line, "alice ") {
		t.Errorf("at the shared one: got %s", line)
	}
}

func TestKeyInAFile(t *testing.T) {
	r := newRig(t, func(r *rig) { r.options.Args = append(r.options.Args, "--loopback-key", "file") })
	s := r.broker.GetStatus()
	path := filepath.Join(r.broker.State, "loopback.key")
	if s.Endpoint.Key != path || len(s.Notices) != 1 || !strings.Contains(s.Notices[0].Message, path) {
		t.Errorf("status: %+v", s)
	}
	if line, _ := r.get("prod", r.ticket("prod"), "/whoami"); !strings.HasPrefix(line, "alice ") {
		t.Errorf("got %s", line)
	}
}

func TestLostLoopbackKey(t *testing.T) {
	r := newRig(t)
	before := r.broker.GetStatus().Endpoint
	r.broker.Stop()
	if err := r.client.DeleteSealed(context.Background(), "broker-loopback"); err != nil {
		t.Fatal(err)
	}
	r.options.Dir, r.options.Profiles = r.broker.Dir, nil
	r.broker = daemon.StartBroker(t, r.options)
	s := r.broker.GetStatus()
	if s.Endpoint.Address != before.Address || s.Endpoint.Certificate == before.Certificate {
		t.Errorf("got %+v, want the same address and another certificate", s.Endpoint)
	}
	if len(s.Notices) != 1 || !strings.Contains(s.Notices[0].Hint, "holdfast kubeconfig add") {
		t.Errorf("notices: %+v", s.Notices)
	}
}
