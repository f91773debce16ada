package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"holdfast/internal/agentwire"
	"holdfast/internal/brokerwire"
	"holdfast/internal/dial"
	"holdfast/internal/fault"
	"holdfast/internal/varlink"
	"holdfast/test/daemon"
)

func TestAgentAway(t *testing.T) {
	r := newRig(t)
	asked := brokerwire.GetCredentialParameters{Profile: "prod", Mode: brokerwire.ModeProxy}
	r.ticket("prod")
	r.agent.Stop()
	_, err := r.plugin(asked)
	if e, ok := fault.AsError(err); !ok || e.Kind != brokerwire.AgentUnreachable || e.Hint == "" {
		t.Errorf("without an agent: %v, want agent-unreachable with a hint", err)
	}
	if n := r.metric("holdfast_broker_plugin_answers_total", "code", "3", "mode", "proxy"); n != 1 {
		t.Errorf("%v answers with code 3 were counted, want 1", n)
	}
	if n := r.metric("holdfast_broker_plugin_answers_total", "code", "0", "mode", "proxy"); n != 1 {
		t.Errorf("%v answers with code 0 were counted, want 1", n)
	}
	if p := r.broker.GetStatus().Profiles[0]; !strings.Contains(p.Fault, "agent") || p.Hint == "" {
		t.Errorf("the profile's fault is %q (%q), want that there is no agent", p.Fault, p.Hint)
	}
	// An agent that comes back while a plugin waits is no failure.
	answered := make(chan error, 1)
	go func() { _, err := r.plugin(asked); answered <- err }()
	r.agent = daemon.Start(t, daemon.Options{Device: r.tpm.Device(), Dir: r.agent.Dir})
	if err := <-answered; err != nil {
		t.Errorf("while the agent restarts: %v", err)
	}
}

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
	asked := brokerwire.GetCredentialParameters{Profile: "pin", Mode: brokerwire.ModeProxy}
	_, err := r.plugin(asked)
	if e, ok := fault.AsError(err); !ok || e.Kind != fault.PINRequired || !strings.Contains(e.Hint, "holdfast unlock careful") {
		t.Errorf("locked: %v, want pin-required and the command", err)
	}
	if p := r.broker.GetStatus().Profiles[0]; p.Fault != "key careful is locked: it wants its PIN" {
		t.Errorf("locked: profile %s has the fault %q", p.Name, p.Fault)
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
	r.wantLocked(ticket)
	if _, err := r.plugin(asked); err != nil {
		t.Errorf("a program that has a ticket gets no other one: %v", err)
	}
	r.unlock()
	if line, _ := r.get("pin", ticket, "/whoami"); !strings.HasPrefix(line, "careful ") {
		t.Errorf("after unlock: %s", line)
	}
	if r.broker.GetStatus().Profiles[1].Connections != 1 {
		t.Error("the connection of another key was cut too")
	}
	other.Body.Close()
}

// wantLocked holds when the proxy answers a ticket for the key careful that it is
// locked, and when to ask again.
func (r *rig) wantLocked(ticket string) {
	r.t.Helper()
	line, answer := r.get("pin", ticket, "/whoami")
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") != "5" || !strings.Contains(line, `"retryAfterSeconds":5`) ||
		!strings.Contains(line, "holdfast: key careful is locked: ") || !strings.Contains(line, "holdfast unlock careful") {
		r.t.Errorf("with a locked key: %s, Retry-After %q, %s", answer.Status, answer.Header.Get("Retry-After"), line)
	}
}

func (r *rig) unlock() {
	r.t.Helper()
	if _, err := r.client.Unlock(context.Background(), agentwire.UnlockKeyParameters{Name: "careful", PIN: []byte("246810")}); err != nil {
		r.t.Fatal(err)
	}
}

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
	if _, err := r.plugin(brokerwire.GetCredentialParameters{Profile: "prod", Mode: brokerwire.ModeProxy}); fault.KindOf(err) != fault.Denied || !strings.Contains(err.(*fault.Error).Hint, "kubernetes prod --key") {
		t.Errorf("without the key: %v", err)
	}
	if p := r.broker.GetStatus().Profiles[0]; !strings.Contains(p.Fault, `no key "alice"`) || !strings.Contains(p.Hint, "holdfast enroll kubernetes prod --key alice") {
		t.Errorf("without the key the profile's fault is %q (%q)", p.Fault, p.Hint)
	}
}

func TestHungAgent(t *testing.T) {
	r := newRig(t)
	r.ticket("prod")
	r.agent.Signal(syscall.SIGSTOP)
	defer r.agent.Signal(syscall.SIGCONT)
	within(t, "the agent stopped", func() bool {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(r.agent.Pid()) + "/stat")
		return strings.Contains(string(stat), ") T ")
	})
	conn, err := dial.Broker().Connect(t.Context(), r.broker.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var waited []string
	p := brokerwire.GetCredentialParameters{Profile: "prod", Mode: brokerwire.ModeProxy}
	within(t, "an answer that needs the agent", func() bool { // the key was ready a moment ago
		waited = nil
		err = conn.CallMore(t.Context(), brokerwire.GetCredential, p, func(reply json.RawMessage, _ bool) error {
			var got brokerwire.GetCredentialReply
			err := json.Unmarshal(reply, &got)
			waited = append(waited, got.Waiting)
			return err
		})
		return err != nil
	})
	var answered *varlink.Error
	if !errors.As(err, &answered) || answered.Name != brokerwire.Errors().ErrorName(brokerwire.AgentUnreachable) {
		t.Errorf("got %v, want agent-unreachable", err)
	}
	if len(waited) < 2 || !strings.Contains(waited[0], "prod") {
		t.Errorf("heard %q, want a word each second", waited)
	}
}

// A device that does not answer is no reason to restart the agent.
func TestStuckDevice(t *testing.T) {
	r := newRig(t)
	r.broker.Stop()
	r.tpm.Stop()
	defer r.tpm.Cont()
	r.options.Dir = r.broker.Dir // with the key that the TPM has sealed
	r.broker = daemon.StartBroker(t, r.options)
	_, err := r.plugin(brokerwire.GetCredentialParameters{Profile: "prod", Mode: brokerwire.ModeProxy})
	if e, ok := fault.AsError(err); !ok || e.Kind != fault.DeviceWedged || !strings.Contains(e.Hint, "holdfast status") {
		t.Errorf("got %v, want device-wedged and what shows it", err)
	}
}

func TestAgentRestart(t *testing.T) {
	r := newRig(t, func(r *rig) {
		r.key(agentwire.CreateKeyParameters{Name: "careful", PIN: []byte("246810")})
		r.unlock()
		r.certify("careful")
		p := r.profile("pin")
		p.Key = "careful"
		r.options.Profiles = append(r.options.Profiles, p)
	})
	ticket := r.ticket("pin")
	_, careful := r.get("pin", ticket, "/watch")
	_, plain := r.get("prod", r.ticket("prod"), "/watch")
	r.agent.Stop()
	r.agent = daemon.Start(t, daemon.Options{Device: r.tpm.Device(), Dir: r.agent.Dir})
	r.broker.WaitLog("the agent was restarted", 1)
	if !cut(careful) {
		t.Error("the watch of a key that wants its PIN again goes on")
	}
	r.wantLocked(ticket)
	if p := r.broker.GetStatus().Profiles[1]; p.Name != "prod" || p.Connections != 1 || p.Tickets != 1 {
		t.Errorf("the other profile: %+v", p)
	}
	r.agent.Signal(syscall.SIGHUP)
	if !cut(plain) {
		t.Errorf("a watch goes on after the agent's policy was read again\n%s", r.broker.Log())
	}
}
