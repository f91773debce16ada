package broker_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
	"holdfast/internal/varlink"
	"holdfast/test/daemon"
	"holdfast/test/pace"
)

func TestProxyMode(t *testing.T) {
	r := newRig(t)
	first, err := r.plugin(brokerwire.GetCredentialParameters{Profile: "prod", Mode: brokerwire.ModeProxy})
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
		!strings.HasPrefix(p.Address, "127.84.175.150:") || p.Certificate == s.Endpoint.Certificate || p.TLSServerName != "" || p.Fault != "" {
		t.Errorf("profile: %+v", p)
	}
	if strings.Contains(r.broker.Log(), ticket) {
		t.Error("the ticket is in the log")
	}
	if err := call(r.broker.Socket, brokerwire.Forget, brokerwire.ForgetParameters{Profile: "prod"}, &brokerwire.Empty{}); err != nil {
		t.Error(err)
	}
	if _, answer := r.get("prod", ticket, "/whoami"); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("a forgotten ticket: got %d, want 401", answer.StatusCode)
	}
	if p := r.broker.GetStatus().Profiles[0]; p.Tickets != 0 || p.Connections != 0 {
		t.Errorf("after Forget: %+v", p)
	}
}

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
		_, err := r.plugin(brokerwire.GetCredentialParameters{Profile: name, Mode: mode})
		return err
	}
	missing, forbidden := answer("nosuch", brokerwire.ModeProxy), answer("secret", brokerwire.ModeProxy)
	if fault.KindOf(missing) != fault.Denied || strings.ReplaceAll(missing.Error(), "nosuch", "secret") != forbidden.Error() {
		t.Errorf("missing: %v; forbidden: %v", missing, forbidden)
	}
	if err := answer("prod", brokerwire.ModeToken); fault.KindOf(err) != fault.Denied {
		t.Errorf("a mode that policy forbids: %v", err)
	}
	if err := answer("two", brokerwire.ModeCertificate); fault.KindOf(err) != fault.Denied || !strings.Contains(err.Error(), "not for mode certificate") {
		t.Errorf("a mode that the profile does not have: %v", err)
	}
	if err := answer("prod", "root"); fault.KindOf(err) != fault.BadRequest {
		t.Errorf("a mode that does not exist: %v", err)
	}
	s := r.broker.GetStatus()
	if len(s.Profiles) != 2 || s.Profiles[0].Name != "prod" || s.Profiles[1].Name != "two" {
		t.Errorf("status shows %+v, want prod and two", s.Profiles)
	}
	if err := call(r.broker.Socket, brokerwire.GetCredential, map[string]any{"profile": "prod", "mode": "proxy", "pid": 1}, nil); err == nil || !strings.Contains(err.Error(), "InvalidParameter") {
		t.Errorf("an unknown member: %v", err)
	}
}

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

func (r *rig) metric(name string, labels ...string) float64 {
	r.t.Helper()
	var reply brokerwire.GetMetricsReply
	if err := call(r.broker.Socket, brokerwire.GetMetrics, brokerwire.Empty{}, &reply); err != nil {
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
	signed := r.broker.GetStatus().Profiles[0].Signatures
	r.broker.Signal(syscall.SIGHUP)
	r.broker.WaitLog("msg=reloaded", 1)
	if n := r.broker.GetStatus().Profiles[0].Connections; n != 1 {
		t.Errorf("the same policy read again: %d connections, want the one of the watch", n)
	}
	if line, _ := r.get("prod", ticket, "/whoami"); !strings.HasPrefix(line, "alice ") {
		t.Errorf("after a reload: got %s", line)
	}
	if s := r.broker.GetStatus().Profiles[0]; s.Signatures != signed+1 || s.Connections != 2 {
		t.Errorf("after a reload: %+v, want a new connection beside that of the watch", s)
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
	if _, err := r.plugin(brokerwire.GetCredentialParameters{Profile: "dev", Mode: brokerwire.ModeProxy}); fault.KindOf(err) != fault.Denied {
		t.Errorf("a removed profile: %v", err)
	}
}

func TestStopsWithAnOpenWatch(t *testing.T) {
	r := newRig(t)
	_, watch := r.get("prod", r.ticket("prod"), "/watch")
	began := time.Now()
	if code := r.broker.Stop(); code != 0 {
		t.Errorf("got status %d\n%s", code, r.broker.Log())
	}
	if took := time.Since(began); pace.Over(t, took, 7*time.Second) {
		t.Errorf("it took %v", took)
	}
	if !cut(watch) {
		t.Error("the watch goes on")
	}
}

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
	var s brokerwire.GetStatusReply
	if err := conn.Call(t.Context(), brokerwire.GetStatus, brokerwire.Empty{}, &s); err != nil || len(s.Profiles) != 0 || len(s.Notices) != 0 || s.Endpoint.Address == "" {
		t.Errorf("another user sees %+v, %v", s, err)
	}
	r.get("prod", r.ticket("prod"), "/whoami") // which is counted
	var counted json.RawMessage
	if err := conn.Call(t.Context(), brokerwire.GetMetrics, brokerwire.Empty{}, &counted); err != nil || bytes.Contains(counted, []byte(`"prod"`)) || !bytes.Contains(counted, []byte(`"profile","other"`)) {
		t.Errorf("another user sees in the metrics %s, %v", counted, err)
	}
	for _, method := range []string{brokerwire.GetCredential, brokerwire.Forget} {
		p := map[string]string{"profile": "prod"}
		if method == brokerwire.GetCredential {
			p["mode"] = brokerwire.ModeProxy
		}
		err := conn.Call(t.Context(), method, p, nil)
		var answered *varlink.Error
		if !errors.As(err, &answered) || answered.Name != brokerwire.Errors().ErrorName(fault.Denied) {
			t.Errorf("%s: got %v, want denied", method, err)
		}
	}
}
