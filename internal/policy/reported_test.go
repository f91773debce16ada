package policy

import (
	"strings"
	"testing"

	"holdfast/internal/peer"
)

// reportedPolicy is that of a node where a broker with a uid of its own signs in
// for its callers.
const reportedPolicy = `version: 1
rules:
  - {name: never for bob, deny: [sign-tls-client], uids: [500], keys: [payroll], for-users: [bob]}
  - {name: never for that unit, deny: [sign-tls-client], uids: [500], keys: [ledger], for-units: [bad.service]}
  - {name: for alice, allow: [sign-tls-client], uids: [500], keys: [laptop], owner: any, for-users: [alice]}
  - {name: for the deployer, allow: [sign-tls-client], uids: [500], keys: [deploy], owner: any, for-uids: [0], for-units: [deploy.service]}
  - {name: for anybody, allow: [sign-tls-client], uids: [500], keys: [payroll, ledger], owner: any}
`

func TestReportedNarrows(t *testing.T) {
	p := parse(t, reportedPolicy)
	broker := peer.Identity{UID: 500, User: "holdfast-broker"}
	alice, bob := &Reported{UID: 1000, User: "alice"}, &Reported{UID: 1001, User: "bob"}
	cases := []struct {
		about string
		key   string
		who   *Reported
		rule  string
		want  bool
	}{
		{"for alice", "laptop", alice, "for alice", true},
		{"for bob", "laptop", bob, "default", false},
		{"for nobody", "laptop", nil, "default", false},
		{"for a new user with alice's uid", "laptop", &Reported{UID: 1000, User: "mallory"}, "default", false},
		{"for alice with another uid", "laptop", &Reported{UID: 1500, User: "alice"}, "default", false},
		{"for root in the unit", "deploy", &Reported{Unit: "deploy.service"}, "for the deployer", true},
		{"for root in another unit", "deploy", &Reported{Unit: "deploy2.service"}, "default", false},
		{"for root in no unit", "deploy", &Reported{}, "default", false},
		{"for alice in the unit", "deploy", &Reported{UID: 1000, User: "alice", Unit: "deploy.service"}, "default", false},
		{"denied for bob", "payroll", bob, "never for bob", false},
		{"denied for bob's uid", "payroll", &Reported{UID: 1001}, "never for bob", false},
		{"denied for bob's name", "payroll", &Reported{UID: 1500, User: "bob"}, "never for bob", false},
		{"denied for nobody, who may be bob", "payroll", nil, "never for bob", false},
		{"not denied for alice", "payroll", alice, "for anybody", true},
		{"denied for the unit", "ledger", &Reported{UID: 1000, Unit: "bad.service"}, "never for that unit", false},
		{"denied for no unit, which may be that one", "ledger", alice, "never for that unit", false},
		{"not denied for another unit", "ledger", &Reported{UID: 1000, Unit: "good.service"}, "for anybody", true},
	}
	for _, c := range cases {
		q := Query{Peer: broker, Reported: c.who, Operation: SignTLSClient, Key: c.key}
		if got := p.Decide(q); got.Allowed != c.want || got.Rule != c.rule {
			t.Errorf("%s: got %+v, want allowed %t by %q", c.about, got, c.want, c.rule)
		}
		// A report gives a peer nothing that its own identity does not.
		q.Peer = peer.Identity{UID: 1000, User: "alice"}
		if got := p.Decide(q); got.Allowed {
			t.Errorf("%s, and the peer is another one: got %+v", c.about, got)
		}
	}
}

// TestReportsNeverWiden checks that a rule with words about the report allows nothing
// that the rule without them denies.
func TestReportsNeverWiden(t *testing.T) {
	narrow := parse(t, reportedPolicy)
	for _, words := range []string{", for-users: [alice]", ", for-uids: [0], for-units: [deploy.service]"} {
		if !strings.Contains(reportedPolicy, words) {
			t.Fatalf("the policy has no %q", words)
		}
	}
	wide := parse(t, strings.NewReplacer(", for-users: [alice]", "", ", for-uids: [0], for-units: [deploy.service]", "").Replace(reportedPolicy))
	reports := []*Reported{nil, {}, {UID: 500}, {UID: 1000, User: "alice"}, {UID: 1001, User: "bob"}, {Unit: "deploy.service"}, {UID: 1000, Unit: "bad.service"}}
	cells := 0
	for _, id := range []peer.Identity{{UID: 500}, {UID: 1000, User: "alice"}, {User: "root", Unit: "deploy.service"}, {UID: 65534}} {
		for _, who := range reports {
			for _, key := range []string{"laptop", "deploy", "payroll", "ledger", "other"} {
				for _, op := range Operations() {
					q := Query{Peer: id, Reported: who, Operation: op, Key: key}
					if cells++; narrow.Decide(q).Allowed && !wide.Decide(q).Allowed {
						t.Errorf("%+v of uid %d for %+v: allowed only with the words that narrow", op, id.UID, who)
					}
				}
			}
		}
	}
	if cells < 300 {
		t.Errorf("got %d cells, want at least 300", cells)
	}
}

// A rule that denies requests for one user must not reject a peer that has not made
// its report yet.
func TestAdmitsCallersThatMayReport(t *testing.T) {
	p := parse(t, "version: 1\nrules: [{deny: [sign-tls-client], uids: [500], for-uids: [7]}, {allow: [sign-tls-client], uids: [500], owner: any}]")
	if got := p.Admits(peer.Identity{UID: 500}, false); !got.Allowed {
		t.Errorf("got %+v, want the peer admitted", got)
	}
}

// A broker unlocks keys for its callers: a rule can name these callers, as for
// signatures.
func TestReportedNarrowsUnlocking(t *testing.T) {
	p := parse(t, "version: 1\nrules: [{allow: [sign-tls-client, unlock], uids: [500], owner: any, for-users: [alice]}]")
	for user, want := range map[string]bool{"alice": true, "bob": false} {
		q := Query{Peer: peer.Identity{UID: 500}, Reported: &Reported{UID: 1000, User: user}, Operation: Unlock, Key: "laptop"}
		if user == "bob" {
			q.Reported.UID = 1001
		}
		if got := p.Decide(q); got.Allowed != want {
			t.Errorf("for %s: got %+v, want allowed %t", user, got, want)
		}
	}
}
