package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/agent/keys"
	agentwire "holdfast/agent/wire"
	"holdfast/client/broker/fault"
	"holdfast/client/broker/wire"
	"holdfast/client/profile"
	"holdfast/client/socket"
	"holdfast/client/varlink"
	"holdfast/test/daemon"
)

// What it is for: a request with a ticket reaches the server signed for by the
// key in the TPM, and one signature serves many.
func TestProxyMode(t *testing.T) {
	r := newRig(t)
	first, err := r.plugin(wire.GetCredentialParameters{Profile: "prod", Mode: wire.ModeProxy})
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(first.ExpirationTimestamp); left < 8*time.Minute || left > 9*time.Minute {
		t.Errorf("to be used for %v, want 9 minutes of a ticket's 10", left)
	}
	ticket := first.Token
	for range 3 {
		line, answer := r.get("prod", ticket, "/whoami")
		if answer.StatusCode != http.StatusOK || !strings.HasPrefix(line, "alice ") || !strings.HasSuffix(line, ` ""`) {
			t.Errorf("got %d %s, want alice and no ticket", answer.StatusCode, line)
		}
	}
	if again := r.ticket("prod"); again != ticket {
		t.Error("the same process got another ticket")
	}
	s := r.broker.GetStatus()
	if s.Endpoint.Key != "sealed by the TPM" || len(s.Notices) != 0 || s.Mode != "user" || s.Policy != "built-in" || s.AgentSocket != r.agent.Socket {
		t.Errorf("status: %+v", s)
	}
	p := s.Profiles[0]
	if len(s.Profiles) != 1 || p.Name != "prod" || p.Signatures != 1 || p.Connections != 1 || p.Tickets != 1 ||
		p.Address != s.Endpoint.Address || p.TLSServerName != "prod.holdfast.internal" || p.Fault != "" {
		t.Errorf("profile: %+v", p)
	}
	if strings.Contains(r.broker.Log(), ticket) {
		t.Error("the ticket is in the log")
	}
	if err := call(r.broker.Socket, wire.Forget, wire.ForgetParameters{Profile: "prod"}, &wire.Empty{}); err != nil {
		t.Error(err)
	}
	if _, answer := r.get("prod", ticket, "/whoami"); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("a forgotten ticket: got %d, want 401", answer.StatusCode)
	}
	if p := r.broker.GetStatus().Profiles[0]; p.Tickets != 0 || p.Connections != 0 {
		t.Errorf("after Forget: %+v", p)
	}
}

// Address, certificate and key outlive the broker.
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

// Who may not, and what is not, look the same.
func TestDenied(t *testing.T) {
	r := newRig(t, func(r *rig) {
		path := filepath.Join(daemon.Dir(t), "policy.yaml")
		text := "version: 1\nrules:\n  - deny: [credentials]\n    uids: [0]\n    profiles: [secret]\n" +
			"  - deny: [token]\n    uids: [0]\n    profiles: [prod]\n  - allow: [all]\n    uids: [0]\n    profiles: [\"*\"]\n  - allow: [status]\n    uids: [0]\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r.options.Args = append(r.options.Args, "--policy", path)
		secret, two := r.profile("secret"), r.profile("two")
		two.Modes = []string{profile.ModeProxy, profile.ModeToken}
		two.Token = profile.Token{Namespace: "n", ServiceAccount: "s"}
		r.options.Profiles = append(r.options.Profiles, secret, two)
	})
	answer := func(name, mode string) error {
		_, err := r.plugin(wire.GetCredentialParameters{Profile: name, Mode: mode})
		return err
	}
	missing, forbidden := answer("nosuch", wire.ModeProxy), answer("secret", wire.ModeProxy)
	if keys.KindOf(missing) != keys.Denied || strings.ReplaceAll(missing.Error(), "nosuch", "secret") != forbidden.Error() {
		t.Errorf("missing: %v; forbidden: %v", missing, forbidden)
	}
	if err := answer("prod", wire.ModeToken); keys.KindOf(err) != keys.Denied {
		t.Errorf("a mode that policy forbids: %v", err)
	}
	if err := answer("two", wire.ModeCertificate); keys.KindOf(err) != keys.Denied || !strings.Contains(err.Error(), "not for mode certificate") {
		t.Errorf("a mode that the profile does not have: %v", err)
	}
	if err := answer("prod", "root"); keys.KindOf(err) != keys.BadRequest {
		t.Errorf("a mode that does not exist: %v", err)
	}
	s := r.broker.GetStatus()
	if len(s.Profiles) != 2 || s.Profiles[0].Name != "prod" || s.Profiles[1].Name != "two" {
		t.Errorf("status shows %+v, want prod and two", s.Profiles)
	}
	if err := call(r.broker.Socket, wire.GetCredential, map[string]any{"profile": "prod", "mode": "proxy", "pid": 1}, nil); err == nil || !strings.Contains(err.Error(), "InvalidParameter") {
		t.Errorf("an unknown member: %v", err)
	}
}

// A stranger is turned away before a byte of theirs is read.
func TestStrangerIsRefusedUnread(t *testing.T) {
	r := newRig(t)
	r.broker.Open()
	conn, err := r.broker.DialAs(1234)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil || os.IsTimeout(err) {
		t.Errorf("got %d bytes, %v, want the end", n, err)
	}
	if n := r.metric("holdfast_broker_refused_connections_total", "reason", "policy"); n != 1 {
		t.Errorf("%v refusals were counted, want 1", n)
	}
}

// metric returns the value of the sample with these labels.
func (r *rig) metric(name string, labels ...string) float64 {
	r.t.Helper()
	var reply wire.GetMetricsReply
	if err := call(r.broker.Socket, wire.GetMetrics, wire.Empty{}, &reply); err != nil {
		r.t.Fatal(err)
	}
	for _, m := range reply.Metrics {
		for _, s := range m.Samples {
			if m.Name == name && strings.Join(s.Labels, ",") == strings.Join(labels, ",") {
				return s.Value
			}
		}
	}
	return 0
}

func TestAgentAway(t *testing.T) {
	r := newRig(t)
	asked := wire.GetCredentialParameters{Profile: "prod", Mode: wire.ModeProxy}
	r.ticket("prod")
	r.agent.Stop()
	_, err := r.plugin(asked)
	if e, ok := keys.AsError(err); !ok || e.Kind != fault.AgentUnreachable || e.Hint == "" {
		t.Errorf("without an agent: %v, want agent-unreachable with a hint", err)
	}
	if n := r.metric("holdfast_broker_plugin_answers_total", "code", "3", "mode", "proxy"); n != 1 {
		t.Errorf("%v answers with code 3 were counted, want 1", n)
	}
	if n := r.metric("holdfast_broker_plugin_answers_total", "code", "0", "mode", "proxy"); n != 1 {
		t.Errorf("%v answers with code 0 were counted, want 1", n)
	}
	// An agent that comes back while a plugin waits is no failure.
	answered := make(chan error, 1)
	go func() { _, err := r.plugin(asked); answered <- err }()
	r.agent = daemon.Start(t, daemon.Options{Device: r.tpm.Device(), Dir: r.agent.Dir})
	if err := <-answered; err != nil {
		t.Errorf("while the agent restarts: %v", err)
	}
}

// A broker that starts before the agent serves when the agent is there.
func TestAgentComesLater(t *testing.T) {
	r := newRig(t, func(r *rig) { r.agent.Stop() })
	if s := r.broker.GetStatus(); s.Endpoint.Address != "" || len(s.Notices) == 0 {
		t.Errorf("before: %+v, want no endpoint and a notice", s)
	}
	r.agent = daemon.Start(t, daemon.Options{Device: r.tpm.Device(), Dir: r.agent.Dir})
	within(t, "the endpoint", func() bool { return r.broker.GetStatus().Endpoint.Address != "" })
	if line, _ := r.get("prod", r.ticket("prod"), "/whoami"); !strings.HasPrefix(line, "alice ") {
		t.Errorf("got %s", line)
	}
	within(t, "no notices", func() bool { return len(r.broker.GetStatus().Notices) == 0 })
}

func TestPIN(t *testing.T) {
	r := newRig(t, func(r *rig) {
		r.key(agentwire.CreateKeyParameters{Name: "careful", PIN: []byte("246810")})
		r.unlock()
		r.certify("careful")
		if err := r.client.Lock(context.Background(), "careful"); err != nil {
			t.Fatal(err)
		}
		p := r.profile("pin")
		p.Key = "careful"
		r.options.Profiles = append(r.options.Profiles, p)
	})
	asked := wire.GetCredentialParameters{Profile: "pin", Mode: wire.ModeProxy}
	_, err := r.plugin(asked)
	if e, ok := keys.AsError(err); !ok || e.Kind != keys.PINRequired || !strings.Contains(e.Hint, "holdfast unlock careful") {
		t.Errorf("locked: %v, want pin-required and the command", err)
	}
	if n := r.metric("holdfast_broker_plugin_answers_total", "code", "5", "mode", "proxy"); n != 1 {
		t.Errorf("%v answers with code 5 were counted, want 1", n)
	}
	r.unlock()
	ticket := r.ticket("pin")
	line, watch := r.get("pin", ticket, "/watch")
	if !strings.HasPrefix(line, "careful ") {
		t.Fatalf("got %s", line)
	}
	_, other := r.get("prod", r.ticket("prod"), "/watch")
	if err := r.client.Lock(context.Background(), "careful"); err != nil {
		t.Fatal(err)
	}
	if !cut(watch) {
		t.Errorf("the watch goes on after lock\n%s", r.broker.Log())
	}
	within(t, "the ticket forgotten", func() bool {
		_, answer := r.get("pin", ticket, "/whoami")
		return answer.StatusCode == http.StatusUnauthorized
	})
	if r.broker.GetStatus().Profiles[1].Connections != 1 {
		t.Error("the connection of another key was cut too")
	}
	other.Body.Close()
}

func (r *rig) unlock() {
	r.t.Helper()
	if _, err := r.client.Unlock(context.Background(), agentwire.UnlockKeyParameters{Name: "careful", PIN: []byte("246810")}); err != nil {
		r.t.Fatal(err)
	}
}

// A renewed certificate cuts nothing, and is used by the next handshake; a key
// that goes takes everything with it.
func TestRenewalAndLoss(t *testing.T) {
	r := newRig(t)
	ticket := r.ticket("prod")
	old, watch := r.get("prod", ticket, "/watch")
	r.certify("alice")
	within(t, "a new handshake", func() bool {
		line, _ := r.get("prod", ticket, "/whoami")
		return line != old && strings.HasPrefix(line, "alice ")
	})
	if r.broker.GetStatus().Profiles[0].Connections < 2 {
		t.Error("the old connection is gone, and its watch with it")
	}
	if err := r.client.DeleteKey(context.Background(), "alice"); err != nil {
		t.Fatal(err)
	}
	if !cut(watch) {
		t.Errorf("the watch goes on without its key\n%s", r.broker.Log())
	}
	if _, err := r.plugin(wire.GetCredentialParameters{Profile: "prod", Mode: wire.ModeProxy}); keys.KindOf(err) != keys.Denied {
		t.Errorf("without the key: %v", err)
	}
}

// Whoever has the port, the broker says so and goes on trying.
func TestPortTaken(t *testing.T) {
	squatter := taken(t)
	address := squatter.Addr().String()
	r := newRig(t, func(r *rig) { r.options.Args = append(r.options.Args, "--listen", address) })
	_, err := r.plugin(wire.GetCredentialParameters{Profile: "prod", Mode: wire.ModeProxy})
	e, ok := keys.AsError(err)
	if !ok || e.Kind != keys.Busy || !strings.Contains(e.Message, address) || !strings.Contains(e.Hint, "--listen") {
		t.Errorf("got %v, want the address and the hint", err)
	}
	if s := r.broker.GetStatus(); len(s.Notices) != 1 || !strings.Contains(s.Notices[0].Message, address) {
		t.Errorf("notices: %+v", s.Notices)
	}
	squatter.Close()
	if line, _ := r.get("prod", r.ticket("prod"), "/whoami"); !strings.HasPrefix(line, "alice ") {
		t.Errorf("after the squatter: got %s", line)
	}
	if s := r.broker.GetStatus(); len(s.Notices) != 0 || s.Endpoint.Address != address {
		t.Errorf("after the squatter: %+v", s)
	}
}

// A profile may have a port of its own, for clients that send no name.
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

func TestReload(t *testing.T) {
	path := filepath.Join(daemon.Dir(t), "policy.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const good = "version: 1\nrules:\n  - allow: [all]\n    uids: [0]\n    profiles: [prod]\n  - allow: [status]\n    uids: [0]\n"
	write(good)
	r := newRig(t, func(r *rig) { r.options.Args = append(r.options.Args, "--policy", path) })
	ticket := r.ticket("prod")
	_, watch := r.get("prod", ticket, "/watch")
	r.broker.Signal(syscall.SIGHUP)
	r.broker.WaitLog("msg=reloaded", 1)
	if n := r.broker.GetStatus().Profiles[0].Connections; n != 1 {
		t.Errorf("the same policy read again: %d connections, want 1", n)
	}
	write("version: 1\nrules: [bad]\n")
	r.broker.Signal(syscall.SIGHUP)
	r.broker.WaitLog("the old policy stays in force", 1)
	if s := r.broker.GetStatus(); len(s.Notices) != 1 || !strings.Contains(s.Notices[0].Message, "stays in force") {
		t.Errorf("notices: %+v", s.Notices)
	}
	if line, _ := r.get("prod", ticket, "/whoami"); !strings.HasPrefix(line, "alice ") {
		t.Errorf("after a bad reload: got %s", line)
	}
	write(strings.Replace(good, "[prod]", "[dev]", 1))
	r.broker.Signal(syscall.SIGHUP)
	r.broker.WaitLog("msg=reloaded", 2)
	if !cut(watch) {
		t.Error("a watch goes on that policy does not allow any more")
	}
	if _, answer := r.get("prod", ticket, "/whoami"); answer.StatusCode == http.StatusOK {
		t.Error("the ticket still works that policy does not allow any more")
	}
}

// A changed profile counts at once, a bad one not at all.
func TestProfileChanges(t *testing.T) {
	r := newRig(t)
	r.broker.WriteProfile(r.profile("dev"))
	r.ticket("dev")
	path := filepath.Join(r.broker.Profiles, "dev.yaml")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(good, "nonsense: 1\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	r.ticket("dev")
	if p := r.broker.GetStatus().Profiles[0]; p.Name != "dev" || !strings.Contains(p.Fault, "nonsense") || p.Tickets != 1 {
		t.Errorf("a bad file: %+v", p)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := r.plugin(wire.GetCredentialParameters{Profile: "dev", Mode: wire.ModeProxy}); keys.KindOf(err) != keys.Denied {
		t.Errorf("a removed profile: %v", err)
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

// Told to stop, the broker ends within the time it has, whatever is open.
func TestStopsWithAnOpenWatch(t *testing.T) {
	r := newRig(t)
	_, watch := r.get("prod", r.ticket("prod"), "/watch")
	began := time.Now()
	if code := r.broker.Stop(); code != 0 {
		t.Errorf("got status %d\n%s", code, r.broker.Log())
	}
	if took := time.Since(began); took > 7*time.Second {
		t.Errorf("it took %v", took)
	}
	if !cut(watch) {
		t.Error("the watch goes on")
	}
}

// The process keeps its memory to itself.
func TestHardened(t *testing.T) {
	r := newRig(t)
	if got := r.broker.Status("NoNewPrivs"); got != 1 {
		t.Errorf("NoNewPrivs is %d", got)
	}
	limits, err := os.ReadFile("/proc/" + strconv.Itoa(r.broker.Pid()) + "/limits")
	if err != nil || !strings.Contains(string(limits), "Max core file size        0                    0") {
		t.Errorf("limits: %v\n%s", err, limits)
	}
}

// An agent that takes the call and says nothing is told from one that works: the
// caller hears what is waited for, and then who it is that hangs.
func TestHungAgent(t *testing.T) {
	r := newRig(t)
	r.ticket("prod")
	r.agent.Signal(syscall.SIGSTOP)
	defer r.agent.Signal(syscall.SIGCONT)
	within(t, "the agent stopped", func() bool {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(r.agent.Pid()) + "/stat")
		return strings.Contains(string(stat), ") T ")
	})
	conn, err := socket.Broker().Connect(t.Context(), r.broker.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var waited []string
	p := wire.GetCredentialParameters{Profile: "prod", Mode: wire.ModeProxy}
	err = conn.CallMore(t.Context(), wire.GetCredential, p, func(reply json.RawMessage, _ bool) error {
		var got wire.GetCredentialReply
		err := json.Unmarshal(reply, &got)
		waited = append(waited, got.Waiting)
		return err
	})
	var answered *varlink.Error
	if !errors.As(err, &answered) || answered.Name != fault.Name(fault.AgentUnreachable) {
		t.Errorf("got %v, want agent-unreachable", err)
	}
	if len(waited) < 2 || !strings.Contains(waited[0], "prod") {
		t.Errorf("heard %q, want a word each second", waited)
	}
}

// The machine's broker lets everybody ask how it is, and shows them nothing else.
func TestSystemMode(t *testing.T) {
	r := newRig(t, func(r *rig) { r.options.Args = append(r.options.Args, "--system") })
	if s := r.broker.GetStatus(); s.Mode != "system" || len(s.Profiles) != 1 {
		t.Errorf("root sees %+v", s)
	}
	r.broker.Open()
	unix, err := r.broker.DialAs(1234)
	if err != nil {
		t.Fatal(err)
	}
	conn := varlink.NewConn(unix)
	defer conn.Close()
	var s wire.GetStatusReply
	if err := conn.Call(t.Context(), wire.GetStatus, wire.Empty{}, &s); err != nil || len(s.Profiles) != 0 || len(s.Notices) != 0 || s.Endpoint.Address == "" {
		t.Errorf("another user sees %+v, %v", s, err)
	}
	for _, method := range []string{wire.GetCredential, wire.Forget} {
		p := map[string]string{"profile": "prod"}
		if method == wire.GetCredential {
			p["mode"] = wire.ModeProxy
		}
		err := conn.Call(t.Context(), method, p, nil)
		var answered *varlink.Error
		if !errors.As(err, &answered) || answered.Name != fault.Name(keys.Denied) {
			t.Errorf("%s: got %v, want denied", method, err)
		}
	}
}

// A TPM that was cleared never gives back the proxy's key: there is a new one, and
// somebody has to write the kubeconfigs again.
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

// An agent that was restarted has forgotten PINs, and nothing else: what other
// keys signed in for goes on. A new policy of the agent's cuts everything.
func TestAgentRestart(t *testing.T) {
	r := newRig(t, func(r *rig) {
		r.key(agentwire.CreateKeyParameters{Name: "careful", PIN: []byte("246810")})
		r.unlock()
		r.certify("careful")
		p := r.profile("pin")
		p.Key = "careful"
		r.options.Profiles = append(r.options.Profiles, p)
	})
	_, careful := r.get("pin", r.ticket("pin"), "/watch")
	_, plain := r.get("prod", r.ticket("prod"), "/watch")
	r.agent.Stop()
	r.agent = daemon.Start(t, daemon.Options{Device: r.tpm.Device(), Dir: r.agent.Dir})
	r.broker.WaitLog("the agent was restarted", 1)
	if !cut(careful) {
		t.Error("the watch of a key that wants its PIN again goes on")
	}
	if p := r.broker.GetStatus().Profiles[1]; p.Name != "prod" || p.Connections != 1 || p.Tickets != 1 {
		t.Errorf("the other profile: %+v", p)
	}
	r.agent.Signal(syscall.SIGHUP)
	if !cut(plain) {
		t.Errorf("a watch goes on after the agent's policy was read again\n%s", r.broker.Log())
	}
}
