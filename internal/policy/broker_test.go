package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/peer"
)

const brokerPolicy = `version: 1
accept-racy-units: false
rules:
  - name: nobody has tokens of production
    deny: [token]
    anyone: true
    profiles: ["prod*"]
  - name: developers
    allow: [proxy]
    groups: [dev]
    profiles: [dev, "prod-*"]
  - name: alice
    allow: [credentials]
    users: [alice]
    profiles: [prod]
  - name: the deployer
    allow: [all]
    units: [deploy.service]
    profiles: ["*"]
  - name: state
    allow: [status]
    anyone: true
`

func parseBroker(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := brokerDialect().parse(world{}, "policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// brokerAllowed is every cell that brokerPolicy allows: peer | profile | operations.
const brokerAllowed = `
alice           | prod        | proxy certificate
alice           | *           | status
alice in dev    | prod        | proxy certificate
alice in dev    | dev         | proxy
alice in dev    | prod-eu     | proxy
alice in dev    | *           | status
new 1000        | *           | status
nameless 1000   | *           | status
alice elsewhere | *           | status
bob             | *           | status
bob in dev      | dev         | proxy
bob in dev      | prod-eu     | proxy
bob in dev      | *           | status
root in dev     | dev         | proxy
root in dev     | prod-eu     | proxy
kubelet maybe   | *           | status
kubelet as 1300 | *           | status
kubelet2        | *           | status
deployer        | dev         | proxy certificate token
deployer        | other       | proxy certificate token
deployer        | prod        | proxy certificate
deployer        | prod-eu     | proxy certificate
deployer        | production  | proxy certificate
deployer        | *           | status
maybe deployer  | *           | status
`

func TestBrokerMatrix(t *testing.T) {
	peers := matrixPeers()
	peers["deployer"] = peer.Identity{UID: 1400, PID: 16, Unit: "deploy.service"}
	peers["maybe deployer"] = peer.Identity{UID: 1400, PID: 16, Unit: "deploy.service", UnitRacy: true}
	profiles := []string{"prod", "prod-eu", "production", "dev", "other", "", "Prod", "-prod", "../prod", strings.Repeat("p", 64)}
	allowed := map[string]bool{}
	for line := range strings.Lines(strings.TrimSpace(brokerAllowed)) {
		columns := strings.Split(line, "|")
		who, profile := strings.TrimSpace(columns[0]), strings.TrimSpace(columns[1])
		if _, known := peers[who]; !known {
			t.Fatalf("line %q: no such peer", line)
		}
		where := []string{profile}
		if profile == "*" {
			where = profiles
		}
		for _, profile := range where {
			for op := range strings.FieldsSeq(columns[2]) {
				allowed[fmt.Sprint(who, "|", profile, "|", op)] = true
			}
		}
	}
	p := parseBroker(t, brokerPolicy)
	total := 0
	for who, id := range peers {
		for _, profile := range profiles {
			for _, op := range operations {
				name := fmt.Sprint(who, "|", profile, "|", op)
				d := p.Decide(Query{Peer: id, Operation: op, Profile: profile, Key: "web", Owner: id.UID, OwnerUser: id.User})
				total++
				if d.Allowed != allowed[name] {
					t.Errorf("%s: got %+v, want allowed %t", name, d, allowed[name])
				}
				if d.Allowed && !p.Admits(id, false).Allowed {
					t.Errorf("%s: allowed, and the peer is not admitted", name)
				}
				delete(allowed, name)
			}
		}
	}
	for name := range allowed {
		t.Errorf("the table has a cell that was not asked: %s", name)
	}
	if total < 300 {
		t.Errorf("got %d cells, want at least 300", total)
	}
}

func TestParseBrokerRefuses(t *testing.T) {
	cases := []struct{ about, old, new, want string }{
		{"operation of an agent", "[credentials]", "[credentials, sign-tls-client]", `policy.yaml:13: there is no operation "sign-tls-client" for a broker; there are credentials, all, proxy, certificate, token, status`},
		{"operations of an agent", "[credentials]", "[use]", `policy.yaml:13: there is no operation "use" for a broker`},
		{"audit", "[status]", "[audit]", `policy.yaml:21: there is no operation "audit" for a broker`},
		{"keys", "    profiles: [prod]", "    keys: [prod]", `policy.yaml:15: a rule of a broker has no word "keys"; the words are allow, anyone, deny, gids, groups, name, profiles, uids, units, users`},
		{"owner", "    profiles: [prod]", "    owner: self", `policy.yaml:15: a rule of a broker has no word "owner"`},
		{"socket", "    profiles: [prod]", "    socket: admin", `policy.yaml:15: a rule of a broker has no word "socket"`},
		{"for-users", "    profiles: [prod]", "    for-users: [bob]", `policy.yaml:15: a rule of a broker has no word "for-users"`},
		{"no profiles", "    profiles: [prod]\n", "", "policy.yaml:12: the rule does not say which profiles"},
		{"empty profiles", "[prod]", "[]", "policy.yaml:15: expected a list such as"},
		{"profile in capitals", "[prod]", "[Prod]", `policy.yaml:15: "Prod" is not a profile's name`},
		{"profile with a dot", "[prod]", "[prod.1]", `policy.yaml:15: "prod.1" is not a profile's name`},
		{"profile with a dash at its end", "[prod]", "[prod-]", `policy.yaml:15: "prod-" is not a profile's name`},
		{"star in the middle", "[prod]", `["p*d"]`, `policy.yaml:15: "p*d" is not a profile's name`},
		{"two stars", "[prod]", `["p**"]`, `policy.yaml:15: "p**" is not a profile's name`},
		{"profile too long", "[prod]", "[" + strings.Repeat("p", 64) + "]", `policy.yaml:15: "ppp`},
		{"profile twice", "[prod]", "[prod, prod]", `policy.yaml:15: "prod" is in the list already`},
		{"status with a profile", "[credentials]", "[proxy, status]", "policy.yaml:12: status concerns no profile"},
		{"unknown user", "[alice]", "[alicce]", `policy.yaml:14: there is no user "alicce"`},
		{"nobody named", "    users: [alice]\n", "", "policy.yaml:12: the rule names no callers"},
	}
	for _, c := range cases {
		if strings.Count(brokerPolicy, c.old) < 1 {
			t.Fatalf("%s: the baseline has no %q", c.about, c.old)
		}
		_, err := brokerDialect().parse(world{}, "policy.yaml", []byte(strings.Replace(brokerPolicy, c.old, c.new, 1)))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error that starts %q", c.about, err, c.want)
		}
	}
}

// The two programs' policies are not taken for each other.
func TestParsersAreApart(t *testing.T) {
	if _, err := agentDialect().parse(world{}, "p", []byte(brokerPolicy)); err == nil {
		t.Error("the agent takes a broker's policy")
	}
	if _, err := brokerDialect().parse(world{}, "p", []byte(baseline)); err == nil {
		t.Error("the broker takes an agent's policy")
	}
	path := filepath.Join(t.TempDir(), "policy.yaml")
	text := "version: 1\nrules: [{allow: [proxy], users: [root], profiles: [\"*\"]}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := ParseBrokerFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Decide(Query{Peer: peer.Identity{User: "root"}, Operation: Proxy, Profile: "prod"}); !got.Allowed || got.Where != path+":2" {
		t.Errorf("got %+v, want root allowed by %s:2", got, path)
	}
	if _, err := ParseFile(path); err == nil {
		t.Error("the agent takes a broker's file")
	}
}

func TestBrokerDefaults(t *testing.T) {
	alice := peer.Identity{UID: 1000, User: "alice"}
	bob := peer.Identity{UID: 1001, User: "bob"}
	root := peer.Identity{User: "root"}
	user, system := BrokerUserDefault(1000), BrokerSystemDefault()
	for _, op := range operations {
		q := Query{Operation: op, Profile: "prod", Key: "web"}
		ask := func(p *Policy, id peer.Identity) bool {
			q.Peer, q.Owner, q.OwnerUser = id, id.UID, id.User
			return p.Decide(q).Allowed
		}
		credential := op == Proxy || op == Certificate || op == Token
		state := op == Status
		if got, want := ask(user, alice), credential || state; got != want {
			t.Errorf("%s, own broker, alice: got %t, want %t", op, got, want)
		}
		if ask(user, bob) || ask(user, root) {
			t.Errorf("%s, alice's broker: others are allowed", op)
		}
		if got, want := ask(system, root), credential || state; got != want {
			t.Errorf("%s, machine's broker, root: got %t, want %t", op, got, want)
		}
		if got := ask(system, alice); got != state {
			t.Errorf("%s, machine's broker, alice: got %t, want %t", op, got, state)
		}
	}
	for _, p := range []*Policy{user, system} {
		if p.Source() != "built-in" || p.NeedsUnits() {
			t.Errorf("got %+v", p)
		}
	}
}

// A denial that concerns some profiles leaves others, and status, open.
func TestBrokerAdmits(t *testing.T) {
	alice := peer.Identity{UID: 1000, User: "alice"}
	for rules, want := range map[string]bool{
		`[{allow: [proxy], users: [alice], profiles: [a]}]`:                                                 true,
		`[{deny: [all], users: [alice], profiles: ["*"]}, {allow: [proxy], users: [alice], profiles: [a]}]`: true, // decided for each profile
		`[{deny: [credentials], users: [alice]}, {allow: [proxy], users: [alice], profiles: [a]}]`:          false,
		`[{deny: [token], users: [alice]}, {allow: [all], users: [alice], profiles: [a]}]`:                  true,
		`[{deny: [credentials], users: [alice]}, {allow: [all], users: [alice], profiles: [a]}]`:            false,
	} {
		p, err := brokerDialect().parse(world{}, "policy.yaml", []byte("version: 1\nrules: "+rules))
		if err != nil {
			t.Fatalf("%s: %v", rules, err)
		}
		if got := p.Admits(alice, false); got.Allowed != want {
			t.Errorf("%s: got %+v, want allowed %t", rules, got, want)
		}
	}
}

func FuzzParseBroker(f *testing.F) {
	seeds := []string{brokerPolicy, baseline, "version: 1\nrules: [{allow: [status], uids: [0]}]", `{version: 1, rules: [{deny: [all], anyone: true, profiles: ["*"]}]}`, "a: &a [*a]"}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := brokerDialect().parse(world{}, "f", data)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "f:") {
					t.Errorf("fault without file and line: %q", line)
				}
			}
			return
		}
		for i, r := range p.rules {
			if r.operations == 0 || r.operations&^(credentials|setOf(Status)) != 0 || len(r.keys) > 0 || r.owner.kind != ownerUnsaid || r.aboutReported() {
				t.Errorf("rule %d is not a broker's: %+v", i, r)
			}
		}
	})
}
