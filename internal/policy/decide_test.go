package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/peer"
)

// matrixPolicy is judged by the table in TestAccessMatrix.
const matrixPolicy = `version: 1
rules:
  - {name: no export, deny: [export], anyone: true}
  - {name: own keys, allow: [use, manage], anyone: true, owner: self}
  - {name: state, allow: [status], users: [alice, root]}
  - {name: machine keys, allow: [manage], users: [root], owner: machine, socket: admin}
  - {name: not this one, deny: [all], users: [bob], keys: [web-secret]}
  - {name: web, allow: [list, sign-tls-server], groups: [dev], keys: ["web*"], owner: machine}
  - {name: kubelet, allow: [sign-tls-client], units: [kubelet.service], keys: [node], owner: 0, socket: use}
  - {name: alice for bob, allow: [sign-tls-client], users: [alice], keys: [laptop], owner: 1001}
`

func matrixPeers() map[string]peer.Identity {
	return map[string]peer.Identity{
		"alice":           {UID: 1000, User: "alice", GID: 1000, PID: 10},
		"alice in dev":    {UID: 1000, User: "alice", GID: 1000, Groups: []uint32{27, 2000}, PID: 10},
		"new 1000":        {UID: 1000, User: "mallory", GID: 1000, PID: 11},
		"nameless 1000":   {UID: 1000, GID: 1000, PID: 11},
		"alice elsewhere": {UID: 1500, User: "alice", GID: 1500, PID: 11},
		"bob":             {UID: 1001, User: "bob", GID: 1001, PID: 12},
		"bob in dev":      {UID: 1001, User: "bob", GID: 2000, PID: 12},
		"root":            {UID: 0, User: "root", PID: 13},
		"root in dev":     {UID: 0, User: "root", Groups: []uint32{2000}, PID: 13},
		"kubelet":         {UID: 0, User: "root", PID: 14, Unit: "kubelet.service"},
		"kubelet maybe":   {UID: 1300, User: "kubelet", PID: 14, Unit: "kubelet.service", UnitRacy: true},
		"kubelet as 1300": {UID: 1300, User: "kubelet", PID: 14, Unit: "kubelet.service"},
		"kubelet2":        {UID: 1300, User: "kubelet", PID: 14, Unit: "kubelet2.service"},
		"nobody":          {UID: 65534, User: "nobody", GID: 65534, Groups: []uint32{2000}, PID: 15, Unit: "kubelet.service"},
		"minus one":       {UID: 1<<32 - 1, GID: 2000, PID: 15, Unit: "kubelet.service"},
	}
}

func matrixKeys() map[string]Query {
	return map[string]Query{
		"laptop of alice":   {Key: "laptop", Owner: 1000, OwnerUser: "alice"},
		"laptop.2 of bob":   {Key: "laptop.2", Owner: 1001, OwnerUser: "bob"},
		"old of 1000":       {Key: "old", Owner: 1000},
		"web of root":       {Key: "web", Owner: 0, OwnerUser: "root"},
		"web-secret":        {Key: "web-secret", Owner: 0, OwnerUser: "root"},
		"node.3 of root":    {Key: "node.3", Owner: 0, OwnerUser: "root"},
		"node-b of root":    {Key: "node-b", Owner: 0, OwnerUser: "root"},
		"node of bob":       {Key: "node", Owner: 1001, OwnerUser: "bob"},
		"web of alice":      {Key: "web", Owner: 1000, OwnerUser: "alice"},
		"not a key's name":  {Key: "../web", Owner: 0, OwnerUser: "root"},
		"no key":            {Owner: 0, OwnerUser: "root"},
		"laptop of nobody":  {Key: "laptop", Owner: 65534, OwnerUser: "nobody"},
		"web of kubelet":    {Key: "web", Owner: 1300, OwnerUser: "kubelet"},
		"new of the caller": {Key: "new"}, // Owner and OwnerUser are the caller's, as when a key is made
	}
}

// matrixAllowed is every cell that is allowed, written from what the policy is
// meant to say and not from how it is decided: peer | key | operations | sockets.
const matrixAllowed = `
alice           | laptop of alice   | list create delete seal sign-tls-client sign-tls-server unlock | use admin
alice           | old of 1000       | list create delete seal sign-tls-client sign-tls-server unlock | use admin
alice           | web of alice      | list create delete seal sign-tls-client sign-tls-server unlock | use admin
alice           | new of the caller | list create delete seal sign-tls-client sign-tls-server unlock | use admin
alice           | laptop.2 of bob   | sign-tls-client                                                | use admin
alice           | *                 | status                                                         | use admin
alice in dev    | laptop of alice   | list create delete seal sign-tls-client sign-tls-server unlock | use admin
alice in dev    | old of 1000       | list create delete seal sign-tls-client sign-tls-server unlock | use admin
alice in dev    | web of alice      | list create delete seal sign-tls-client sign-tls-server unlock | use admin
alice in dev    | new of the caller | list create delete seal sign-tls-client sign-tls-server unlock | use admin
alice in dev    | laptop.2 of bob   | sign-tls-client                                                | use admin
alice in dev    | web of root       | list sign-tls-server                                           | use admin
alice in dev    | web-secret        | list sign-tls-server                                           | use admin
alice in dev    | *                 | status                                                         | use admin
new 1000        | old of 1000       | list create delete seal sign-tls-client sign-tls-server unlock | use admin
new 1000        | new of the caller | list create delete seal sign-tls-client sign-tls-server unlock | use admin
nameless 1000   | old of 1000       | list create delete seal sign-tls-client sign-tls-server unlock | use admin
nameless 1000   | new of the caller | list create delete seal sign-tls-client sign-tls-server unlock | use admin
alice elsewhere | new of the caller | list create delete seal sign-tls-client sign-tls-server unlock | use admin
bob             | laptop.2 of bob   | list create delete seal sign-tls-client sign-tls-server unlock | use admin
bob             | node of bob       | list create delete seal sign-tls-client sign-tls-server unlock | use admin
bob             | new of the caller | list create delete seal sign-tls-client sign-tls-server unlock | use admin
bob in dev      | laptop.2 of bob   | list create delete seal sign-tls-client sign-tls-server unlock | use admin
bob in dev      | node of bob       | list create delete seal sign-tls-client sign-tls-server unlock | use admin
bob in dev      | new of the caller | list create delete seal sign-tls-client sign-tls-server unlock | use admin
bob in dev      | web of root       | list sign-tls-server                                           | use admin
root            | web of root       | list create delete seal                                        | admin
root            | web-secret        | list create delete seal                                        | admin
root            | node.3 of root    | list create delete seal                                        | admin
root            | node-b of root    | list create delete seal                                        | admin
root            | new of the caller | list create delete seal                                        | admin
root            | *                 | status                                                         | use admin
root in dev     | web of root       | list create delete seal sign-tls-server                        | admin
root in dev     | web of root       | list sign-tls-server                                           | use
root in dev     | web-secret        | list create delete seal sign-tls-server                        | admin
root in dev     | web-secret        | list sign-tls-server                                           | use
root in dev     | node.3 of root    | list create delete seal                                        | admin
root in dev     | node-b of root    | list create delete seal                                        | admin
root in dev     | new of the caller | list create delete seal                                        | admin
root in dev     | *                 | status                                                         | use admin
kubelet         | web of root       | list create delete seal                                        | admin
kubelet         | web-secret        | list create delete seal                                        | admin
kubelet         | node.3 of root    | list create delete seal                                        | admin
kubelet         | node-b of root    | list create delete seal                                        | admin
kubelet         | new of the caller | list create delete seal                                        | admin
kubelet         | node.3 of root    | sign-tls-client                                                | use
kubelet         | *                 | status                                                         | use admin
kubelet maybe   | web of kubelet    | list create delete seal sign-tls-client sign-tls-server unlock | use admin
kubelet maybe   | new of the caller | list create delete seal sign-tls-client sign-tls-server unlock | use admin
kubelet as 1300 | node.3 of root    | sign-tls-client                                                | use
kubelet as 1300 | web of kubelet    | list create delete seal sign-tls-client sign-tls-server unlock | use admin
kubelet as 1300 | new of the caller | list create delete seal sign-tls-client sign-tls-server unlock | use admin
kubelet2        | web of kubelet    | list create delete seal sign-tls-client sign-tls-server unlock | use admin
kubelet2        | new of the caller | list create delete seal sign-tls-client sign-tls-server unlock | use admin
`

// cells spreads a table like matrixAllowed.
func cells(t *testing.T, table string) map[string]bool {
	allowed := map[string]bool{}
	for line := range strings.Lines(strings.TrimSpace(table)) {
		columns := strings.Split(line, "|")
		if len(columns) != 4 {
			t.Fatalf("line %q has %d columns", line, len(columns))
		}
		who, key := strings.TrimSpace(columns[0]), strings.TrimSpace(columns[1])
		if _, known := matrixPeers()[who]; !known {
			t.Fatalf("line %q: no such peer", line)
		}
		keys := []string{key}
		if key == "*" {
			keys = nil
			for name := range matrixKeys() {
				keys = append(keys, name)
			}
		}
		for _, key := range keys {
			if _, known := matrixKeys()[key]; !known {
				t.Fatalf("line %q: no such key", line)
			}
			for _, op := range strings.Fields(columns[2]) {
				for _, socket := range strings.Fields(columns[3]) {
					allowed[cell(who, key, Operation(op), socket == "admin")] = true
				}
			}
		}
	}
	return allowed
}

func cell(who, key string, op Operation, admin bool) string {
	return fmt.Sprintf("%s | %s | %s | admin socket %t", who, key, op, admin)
}

func TestAccessMatrix(t *testing.T) {
	p := parse(t, matrixPolicy)
	allowed := cells(t, matrixAllowed)
	total, leaks, falseDenials := 0, 0, 0
	for who, id := range matrixPeers() {
		for key, base := range matrixKeys() {
			for _, op := range []Operation{List, Create, Delete, Export, SignTLSClient, SignTLSServer, Unlock, Seal, Unseal, Status, Audit, "no-such"} {
				for _, admin := range []bool{false, true} {
					q := base
					q.Peer, q.Operation, q.Admin = id, op, admin
					if key == "new of the caller" {
						q.Owner, q.OwnerUser = id.UID, id.User
					}
					name := cell(who, key, op, admin)
					d := p.Decide(q)
					total++
					switch {
					case d.Allowed && !allowed[name]:
						leaks++
						t.Errorf("leak: %s: %+v", name, d)
					case !d.Allowed && allowed[name]:
						falseDenials++
						t.Errorf("false denial: %s: %+v", name, d)
					}
					if d.Allowed && !p.Admits(id, admin).Allowed {
						t.Errorf("%s: allowed, and the peer is not admitted", name)
					}
					delete(allowed, name)
				}
			}
		}
	}
	for name := range allowed {
		t.Errorf("the table has a cell that was not asked: %s", name)
	}
	t.Logf("%d cells, %d leaks, %d false denials", total, leaks, falseDenials)
	if total < 300 {
		t.Errorf("got %d cells, want at least 300", total)
	}
}

func TestDecisionNamesItsRule(t *testing.T) {
	p := parse(t, baseline)
	alice := peer.Identity{UID: 1000, User: "alice", GID: 2000, Unit: "kubelet.service"}
	base := Query{Peer: alice, Operation: SignTLSClient, Key: "node-1", Owner: 1000, OwnerUser: "alice"}
	cases := []struct {
		about  string
		change func(*Query)
		want   Decision
	}{
		{"as it is", func(*Query) {}, Decision{true, "first", "policy.yaml:4", "the rule allows sign-tls-client"}},
		{"second rule", func(q *Query) { q.Admin = true }, Decision{false, "#2", "policy.yaml:12", "the rule denies sign-tls-client"}},
		{"no such operation", func(q *Query) { q.Operation = "sign" }, Decision{false, "default", "", "there is no such operation"}},
		{"group word", func(q *Query) { q.Operation = "use" }, Decision{false, "default", "", "there is no such operation"}},
		{"no such uid", func(q *Query) { q.Peer.UID = 65534 }, Decision{false, "default", "", "the peer's uid does not exist here"}},
		{"no key", func(q *Query) { q.Key = "" }, Decision{false, "default", "", "that is not a key name"}},
	}
	for _, c := range cases {
		q := base
		c.change(&q)
		if got := p.Decide(q); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.about, got, c.want)
		}
	}
	only := parse(t, "version: 1\nrules: [{allow: [status], uids: [7]}]")
	if got, want := only.Decide(base), (Decision{false, "default", "", "no rule matches"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A rule that denies takes the doubtful cases with it.
func TestDenyReadsDoubtTheOtherWay(t *testing.T) {
	const tail = "\n  - {allow: [all], uids: [0, 1000, 1001, 1500], owner: any}\n"
	cases := []struct {
		about, rule string
		id          peer.Identity
		owner       Query
	}{
		{"same uid, other name", "{deny: [list], users: [alice]}", peer.Identity{UID: 1000, User: "mallory"}, Query{}},
		{"same uid, no name", "{deny: [list], users: [alice]}", peer.Identity{UID: 1000}, Query{}},
		{"same name, other uid", "{deny: [list], users: [alice]}", peer.Identity{UID: 1500, User: "alice"}, Query{}},
		{"root is anyone", "{deny: [list], anyone: true}", peer.Identity{}, Query{}},
		{"unit perhaps", "{deny: [list], units: [x.service]}", peer.Identity{UID: 1000, Unit: "x.service", UnitRacy: true}, Query{}},
		{"owner with a former name", "{deny: [list], uids: [1000], owner: self}", peer.Identity{UID: 1000, User: "new"}, Query{Owner: 1000, OwnerUser: "old"}},
	}
	for _, c := range cases {
		q := c.owner
		q.Peer, q.Operation, q.Key = c.id, List, "web"
		if got := parse(t, "version: 1\nrules:\n  - "+c.rule+tail).Decide(q); got.Allowed {
			t.Errorf("%s: got %+v, want a denial", c.about, got)
		}
		without := strings.Replace(c.rule, "deny: [list]", "deny: [delete]", 1)
		if got := parse(t, "version: 1\nrules:\n  - "+without+tail).Decide(q); !got.Allowed {
			t.Errorf("%s, without the rule: got %+v, want it allowed", c.about, got)
		}
	}
}

// "all" in a rule about keys is all that concerns keys.
func TestRulesAboutKeysLeaveStatusAlone(t *testing.T) {
	alice := peer.Identity{UID: 1000, User: "alice"}
	for _, about := range []string{"owner: self", "owner: any", "owner: any, keys: [\"*\"]"} {
		allow := parse(t, "version: 1\nrules: [{allow: [all], users: [alice], "+about+"}]")
		if got := allow.Decide(Query{Peer: alice, Operation: Status, Owner: 1000}); got.Allowed {
			t.Errorf("%s: got %+v, want status denied", about, got)
		}
		deny := parse(t, "version: 1\nrules: [{deny: [all], users: [alice], "+about+"}, {allow: [status], users: [alice]}]")
		if got := deny.Decide(Query{Peer: alice, Operation: Status, Owner: 1000}); !got.Allowed {
			t.Errorf("%s: got %+v, want status allowed", about, got)
		}
		closed := parse(t, "version: 1\nrules: [{deny: [use, manage, unseal], anyone: true}, {allow: [all], users: [alice], "+about+"}]")
		if got := closed.Admits(alice, false); got.Allowed {
			t.Errorf("%s: got %+v, want nobody admitted", about, got)
		}
	}
}

func TestRacyUnitsHaveToBeAccepted(t *testing.T) {
	const text = "version: 1\naccept-racy-units: %t\nrules:\n  - {allow: [list], units: [x.service], owner: any}\n"
	q := Query{Peer: peer.Identity{UID: 5, Unit: "x.service", UnitRacy: true}, Operation: List, Key: "web"}
	for _, accept := range []bool{false, true} {
		p := parse(t, fmt.Sprintf(text, accept))
		if got := p.Decide(q).Allowed; got != accept {
			t.Errorf("accept-racy-units %t: got allowed %t", accept, got)
		}
		if p.Enforceable(true) != nil || (p.Enforceable(false) == nil) != accept {
			t.Errorf("accept-racy-units %t: got %v, %v", accept, p.Enforceable(true), p.Enforceable(false))
		}
		if !p.NeedsUnits() || p.AcceptRacyUnits != accept {
			t.Errorf("got NeedsUnits %t, AcceptRacyUnits %t", p.NeedsUnits(), p.AcceptRacyUnits)
		}
	}
}

func TestAdmits(t *testing.T) {
	alice := peer.Identity{UID: 1000, User: "alice"}
	cases := []struct {
		about, rules string
		id           peer.Identity
		admin        bool
		want         bool
	}{
		{"a rule for alice", "[{allow: [status], users: [alice]}]", alice, false, true},
		{"a rule for bob", "[{allow: [status], users: [bob]}]", alice, false, false},
		{"a rule for the other socket", "[{allow: [status], users: [alice], socket: admin}]", alice, false, false},
		{"a rule for this socket", "[{allow: [status], users: [alice], socket: admin}]", alice, true, true},
		{"denied everything before", "[{deny: [all], anyone: true}, {allow: [status], users: [alice]}]", alice, false, false},
		{"denied this before", "[{deny: [status, list], anyone: true}, {allow: [status], users: [alice]}]", alice, false, false},
		{"denied something else before", "[{deny: [audit], anyone: true}, {allow: [status], users: [alice]}]", alice, false, true},
		{"denied one key before", "[{deny: [all], anyone: true, keys: [web]}, {allow: [use], users: [alice], owner: self}]", alice, false, true},
		{"denied after", "[{allow: [status], users: [alice]}, {deny: [all], anyone: true}]", alice, false, true},
		{"a rule to deny alone", "[{deny: [status], users: [alice]}]", alice, false, false},
		{"denied all of the keys it could have", "[{deny: [use], users: [alice]}, {allow: [use], anyone: true, owner: self}]", alice, false, false},
		{"root is not anyone", "[{allow: [status], anyone: true}]", peer.Identity{User: "root"}, true, false},
		{"root is named", "[{allow: [status], uids: [0]}]", peer.Identity{User: "root"}, true, true},
		{"overflow", "[{allow: [status], anyone: true}]", peer.Identity{UID: 65534}, false, false},
	}
	for _, c := range cases {
		p := parse(t, "version: 1\nrules: "+c.rules)
		if got := p.Admits(c.id, c.admin); got.Allowed != c.want {
			t.Errorf("%s: got %+v, want allowed %t", c.about, got, c.want)
		}
	}
}

func TestUserDefault(t *testing.T) {
	p := UserDefault(1000)
	own := Query{Peer: peer.Identity{UID: 1000, User: "alice"}, Key: "web", Owner: 1000, OwnerUser: "alice"}
	others := own
	others.Owner, others.OwnerUser = 1001, "bob"
	root := own
	root.Peer = peer.Identity{User: "root"}
	for _, op := range Operations() {
		own.Operation, others.Operation, root.Operation = op, op, op
		if got := p.Decide(own); !got.Allowed {
			t.Errorf("%s, own key: got %+v", op, got)
		}
		keyless := setOf(op)&keyless != 0
		if got := p.Decide(others); got.Allowed != keyless {
			t.Errorf("%s, other's key: got %+v", op, got)
		}
		if got := p.Decide(root); got.Allowed {
			t.Errorf("%s, root: got %+v", op, got)
		}
	}
	if p.Admits(root.Peer, false).Allowed || p.Source() != "built-in" || p.NeedsUnits() {
		t.Errorf("got %+v", p)
	}
	if got := UserDefault(0).Decide(Query{Peer: peer.Identity{User: "root"}, Operation: Delete, Key: "web", OwnerUser: "root"}); !got.Allowed {
		t.Errorf("root's own agent: got %+v", got)
	}
}

func TestSystemDefault(t *testing.T) {
	p := SystemDefault()
	ask := func(uid uint32, user string, admin bool, op Operation, owner uint32, ownerUser string) bool {
		return p.Decide(Query{
			Peer: peer.Identity{UID: uid, User: user}, Admin: admin, Operation: op, Key: "web", Owner: owner, OwnerUser: ownerUser,
		}).Allowed
	}
	rootManages := []Operation{List, Create, Delete, Export, Adopt, Bind, InstallCertificate, Seal, SignCertificateRequest, Unlock}
	for _, op := range Operations() {
		keyless := op == Status || op == Audit
		cards := op == ListCards || op == ManageCards // root's alone: a card may be another user's
		for _, admin := range []bool{false, true} {
			if got := ask(1000, "alice", admin, op, 1000, "alice"); got == cards {
				t.Errorf("%s: alice and her own key: got %t", op, got)
			}
			if ask(1000, "alice", admin, op, 1001, "bob") != keyless || ask(1000, "alice", admin, op, 0, "root") != keyless {
				t.Errorf("%s: alice has a key of bob or of the machine", op)
			}
			if ask(1000, "mallory", admin, op, 1000, "alice") != keyless {
				t.Errorf("%s: the new owner of a uid has the old one's key", op)
			}
			if ask(0, "root", admin, op, 1000, "alice") != (keyless || cards) {
				t.Errorf("%s: root has a key of alice", op)
			}
			want := keyless || cards || admin && slices.Contains(rootManages, op)
			if got := ask(0, "root", admin, op, 0, "root"); got != want {
				t.Errorf("%s, admin socket %t: root and the machine's key: got %t, want %t", op, admin, got, want)
			}
		}
	}
}

func TestOperationsAreGrouped(t *testing.T) {
	ops := Operations()
	for _, op := range ops {
		signs := strings.HasPrefix(string(op), "sign-") || op == Unlock
		if got := setOf(op)&use != 0; got != signs {
			t.Errorf("%s: in use %t, want %t", op, got, signs)
		}
		if setOf(op)&use != 0 && setOf(op)&manage != 0 {
			t.Errorf("%s is in both groups", op)
		}
	}
	ops[0] = "changed"
	if Operations()[0] != List {
		t.Error("the list of operations was changed from outside")
	}
}

func FuzzDecide(f *testing.F) {
	seeds := []struct {
		text, op, key, user, unit, ownerUser, forUser, forUnit string
		uid, gid, owner, forUID                                uint32
		admin, racy, reports                                   bool
	}{
		{text: baseline, op: "list", key: "web", user: "alice", uid: 1000, owner: 1000},
		{text: matrixPolicy, op: "status", user: "root"},
		{text: matrixPolicy, op: "sign-tls-client", key: "node.1", unit: "kubelet.service", racy: true},
		{text: "version: 1\nrules: [{deny: [all], anyone: true}]", op: "use", key: "..", uid: 65534},
		{text: reportedPolicy, op: "sign-tls-client", key: "k", uid: 500, reports: true, forUID: 1000, forUser: "alice"},
		{text: brokerPolicy, op: "proxy", key: "prod", uid: 1000, user: "alice"},
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add(s.text, s.op, s.key, s.user, s.unit, s.ownerUser, s.forUser, s.forUnit, s.uid, s.gid, s.owner, s.forUID, s.admin, s.racy, s.reports)
	}
	f.Fuzz(func(t *testing.T, text, op, key, user, unit, ownerUser, forUser, forUnit string, uid, gid, owner, forUID uint32, admin, racy, reports bool) {
		p, err := agentDialect().parse(world{}, "f", []byte(text))
		if err != nil {
			p, err = brokerDialect().parse(world{}, "f", []byte(text))
		}
		if err != nil {
			return
		}
		id := peer.Identity{UID: uid, GID: gid, Groups: []uint32{gid / 2}, User: user, Unit: unit, UnitRacy: racy}
		q := Query{Peer: id, Admin: admin, Operation: Operation(op), Key: key, Owner: owner, OwnerUser: ownerUser, Profile: key}
		silent := p.Decide(q)
		if reports {
			q.Reported = &Reported{UID: forUID, User: forUser, Unit: forUnit}
		}
		d := p.Decide(q)
		if again := p.Decide(q); again != d {
			t.Errorf("got %+v, then %+v", d, again)
		}
		if d.Allowed && uid == 65534 {
			t.Errorf("the overflow uid was allowed: %+v", d)
		}
		if d.Allowed && !p.Admits(id, admin).Allowed {
			t.Errorf("allowed, and not admitted: %+v", d)
		}
		allows := slices.ContainsFunc(p.rules, func(r rule) bool { return r.allow })
		if d.Allowed && !allows {
			t.Errorf("a policy without a rule to allow allowed: %+v", d)
		}
		if d != silent && !slices.ContainsFunc(p.rules, func(r rule) bool { return r.aboutReported() }) {
			t.Errorf("a report made %+v of %+v, and no rule looks at reports", d, silent)
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	p, err := agentDialect().parse(world{}, "policy.yaml", []byte(matrixPolicy))
	if err != nil {
		b.Fatal(err)
	}
	q := Query{Peer: peer.Identity{UID: 1300, Unit: "kubelet.service"}, Operation: SignTLSClient, Key: "node.3"}
	b.ReportAllocs()
	for b.Loop() {
		p.Decide(q)
	}
}
