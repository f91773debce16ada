package agent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"holdfast/agent"
	"holdfast/agent/audit"
	"holdfast/agent/queue"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
)

func (r *rig) signFor(key string, who *agentwire.Reported) error {
	p := agentwire.SignTLSClientParameters{Key: key, Scheme: string(keys.ECDSAP256SHA256), Message: tls13("client"), OnBehalfOf: who}
	return r.call(agentwire.SignTLSClient, p, &agentwire.SignReply{})
}

// TestReportedIsRecordedAsReported: records name the verified caller as the caller, and
// the reported process separately, in the decision and in the outcome.
func TestReportedIsRecordedAsReported(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient)
	if err := r.signFor("alice", &agentwire.Reported{UID: 1234, PID: 77, Start: 99, Unit: "deploy.service"}); err != nil {
		t.Fatal(err)
	}
	lines := r.auditLines()
	for _, line := range lines[len(lines)-2:] {
		caller := fmt.Sprintf(`"caller":{"uid":%d,`, os.Getuid())
		reported := `"reported":{"uid":1234,"pid":77,"start":99,"unit":"deploy.service"}}`
		if !strings.Contains(line, caller) || !strings.Contains(line, reported) {
			t.Errorf("the record %s has no %s … %s", line, caller, reported)
		}
	}
	if err := r.signFor("alice", nil); err != nil {
		t.Fatal(err)
	}
	lines = r.auditLines()
	if last := lines[len(lines)-1]; strings.Contains(last, "reported") {
		t.Errorf("nobody was reported, and the record says %s", last)
	}
}

// The users of one broker share the broker's part of a device's time. A report gives no
// user a part of another caller's time.
func TestReportsDivideTheReportersShare(t *testing.T) {
	broker := &peer.Peer{Identity: peer.Identity{UID: 990, PID: 5, StartTime: 6}}
	one := agent.ShareOf(broker, &audit.Reported{UID: 7, PID: 70, Start: 1})
	again := agent.ShareOf(broker, &audit.Reported{UID: 7, PID: 71, Start: 2})
	other := agent.ShareOf(broker, &audit.Reported{UID: 8, PID: 80, Start: 3})
	if one != again || one == other || one.Process == other.Process {
		t.Errorf("uid 7 is %+v and %+v, uid 8 is %+v", one, again, other)
	}
	for _, c := range []queue.Caller{one, other, agent.ShareOf(broker, nil)} {
		if c.Peer != "uid:990" {
			t.Errorf("counts for %s, not for the caller", c.Peer)
		}
	}
}

func TestImpossibleReportsAreRefused(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient)
	good := agentwire.Reported{UID: 1234, PID: 77, Start: 99, Unit: "deploy.service"}
	if err := r.signFor("alice", &good); err != nil {
		t.Fatal(err)
	}
	before := r.memory.Signs()
	for about, change := range map[string]func(*agentwire.Reported){
		"overflow uid":   func(p *agentwire.Reported) { p.UID = 65534 },
		"no uid":         func(p *agentwire.Reported) { p.UID = 1<<32 - 1 },
		"no pid":         func(p *agentwire.Reported) { p.PID = 0 },
		"negative pid":   func(p *agentwire.Reported) { p.PID = -1 },
		"no start":       func(p *agentwire.Reported) { p.Start = 0 },
		"no unit's name": func(p *agentwire.Reported) { p.Unit = "../deploy" },
		"a huge unit":    func(p *agentwire.Reported) { p.Unit = strings.Repeat("x", 4096) + ".service" },
		"a slice":        func(p *agentwire.Reported) { p.Unit = "system.slice" },
	} {
		bad := good
		change(&bad)
		if got := fault.KindOf(r.signFor("alice", &bad)); got != fault.BadRequest {
			t.Errorf("%s: got kind %q, want bad-request", about, got)
		}
	}
	if n := r.memory.Signs() - before; n != 0 {
		t.Errorf("the device signed %d times", n)
	}
}

// TestPolicyNarrowsByReport: a rule that demands a report needs the caller as well.
func TestPolicyNarrowsByReport(t *testing.T) {
	rules := fmt.Sprintf(`version: 1
rules:
  - {name: make, allow: [create], uids: [%[1]d], owner: self}
  - {name: for 7, allow: [sign-tls-client], uids: [%[1]d], keys: [alice], owner: self, for-uids: [7]}
  - {name: for the deployer, allow: [sign-tls-client], uids: [%[1]d], keys: [bob], owner: self, for-units: [deploy.service]}
  - {name: somebody else for 8, allow: [sign-tls-client], uids: [4321], keys: [alice], owner: any, for-uids: [8]}
`, os.Getuid())
	r := newRig(t, func(r *rig) {
		r.policy = func() (*policy.Policy, error) { return policy.Parse("policy.yaml", []byte(rules)) }
	})
	r.create("alice", keys.TLSClient)
	r.create("bob", keys.TLSClient)
	for _, c := range []struct {
		key  string
		who  *agentwire.Reported
		want fault.Kind
	}{
		{"alice", &agentwire.Reported{UID: 7, PID: 1, Start: 1}, ""},
		{"alice", &agentwire.Reported{UID: 8, PID: 1, Start: 1}, fault.Denied},
		{"alice", nil, fault.Denied},
		{"bob", &agentwire.Reported{UID: 7, PID: 1, Start: 1, Unit: "deploy.service"}, ""},
		{"bob", &agentwire.Reported{UID: 7, PID: 1, Start: 1, Unit: "other.service"}, fault.Denied},
		{"bob", &agentwire.Reported{UID: 7, PID: 1, Start: 1}, fault.Denied},
	} {
		err := r.signFor(c.key, c.who)
		if got := fault.KindOf(err); got != c.want {
			t.Errorf("%s for %+v: got %v, want kind %q", c.key, c.who, err, c.want)
		}
		p := agentwire.CheckPolicyParameters{UID: uint32(os.Getuid()), GIDs: []uint32{}, Key: c.key, Operation: "sign-tls-client"}
		if c.who != nil {
			p.ForUID, p.ForUnit = &c.who.UID, c.who.Unit
		}
		var answer agentwire.CheckPolicyReply
		if err := r.call(agentwire.CheckPolicy, p, &answer); err != nil || answer.Allowed != (c.want == "") {
			t.Errorf("CheckPolicy says %+v, %v for %s and %+v", answer, err, c.key, c.who)
		}
	}
	p := agentwire.CheckPolicyParameters{UID: 7, GIDs: []uint32{}, Key: "bob", Operation: "sign-tls-client", ForUnit: "deploy.service"}
	wantKind(t, r.call(agentwire.CheckPolicy, p, &agentwire.CheckPolicyReply{}), fault.BadRequest)
}
