package policy

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// world is a machine with a few users and groups.
type world struct{}

func (world) UID(name string) (uint32, bool) {
	uid, found := map[string]uint32{"root": 0, "alice": 1000, "bob": 1001, "www-data": 33, "nobody": 65534}[name]
	return uid, found
}

func (world) GID(name string) (uint32, bool) {
	gid, found := map[string]uint32{"root": 0, "dev": 2000, "adm": 4, "nogroup": 65534}[name]
	return gid, found
}

func parse(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := agentDialect().parse(world{}, "policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// baseline is a good policy; each case of TestParseRefuses spoils one thing.
const baseline = `version: 1
accept-racy-units: false
rules:
  - name: first
    allow: [use, list]
    users: [alice]
    groups: [dev]
    units: [kubelet.service]
    keys: [web, "node-*"]
    owner: self
    socket: use
  - deny: [all]
    anyone: true
`

func TestParseTakesTheBaseline(t *testing.T) {
	p := parse(t, baseline)
	if got, want := p.Source(), "policy.yaml"; got != want {
		t.Errorf("source: got %q, want %q", got, want)
	}
	if len(p.rules) != 2 || !p.NeedsUnits() || p.AcceptRacyUnits {
		t.Errorf("got %+v", p)
	}
	if got, want := p.rules[1].name+" "+p.rules[1].where, "#2 policy.yaml:12"; got != want {
		t.Errorf("second rule: got %q, want %q", got, want)
	}
}

func TestParseRefuses(t *testing.T) {
	cases := []struct {
		about, old, new string
		want            string // the beginning of one of the faults
	}{
		{"no version", "version: 1\n", "", "policy.yaml:1: version is missing"},
		{"another version", "version: 1", "version: 2", `policy.yaml:1: version "2" is not known`},
		{"version as text", "version: 1", `version: "1"`, `policy.yaml:1: version "1" is not known`},
		{"version in octal", "version: 1", "version: 0x1", `policy.yaml:1: version "0x1" is not known`},
		{"unknown word above", "accept-racy-units", "accept-racy-unit", `policy.yaml:2: a policy has no word "accept-racy-unit"`},
		{"boolean as text", "units: false", `units: "false"`, `policy.yaml:2: expected true or false`},
		{"boolean as number", "units: false", "units: 0", `policy.yaml:2: expected true or false`},
		{"boolean in capitals", "units: false", "units: FALSE", `policy.yaml:2: expected true or false`},
		{"unknown word in a rule", "    users:", "    user:", `policy.yaml:6: a rule of an agent has no word "user"`},
		{"other case", "    users:", "    Users:", `policy.yaml:6: a rule of an agent has no word "Users"`},
		{"word twice in a rule", "    groups: [dev]", "    users: [bob]", `policy.yaml:7: users is there already, on line 6`},
		{"word twice above", "accept-racy-units: false", "version: 1", `policy.yaml:2: version is there already, on line 1`},
		{"unknown operation", "[use, list]", "[use, lst]", `policy.yaml:5: there is no operation "lst"`},
		{"operation twice", "[use, list]", "[list, list]", `policy.yaml:5: "list" is in the list already`},
		{"operation alone", "[use, list]", "use", "policy.yaml:5: expected a list such as"},
		{"no operation", "[use, list]", "[]", "policy.yaml:5: expected a list such as"},
		{"operation is a number", "[use, list]", "[1]", "policy.yaml:5: expected an operation"},
		{"operation is a list", "[use, list]", "[[use]]", "policy.yaml:5: expected an operation, not a list"},
		{"allow and deny", "    groups: [dev]", "    deny: [use]", "policy.yaml:4: a rule has either allow or deny"},
		{"neither allow nor deny", "    allow: [use, list]\n", "", "policy.yaml:4: a rule has either allow or deny"},
		{"unknown user", "[alice]", "[alicce]", `policy.yaml:6: there is no user "alicce"`},
		{"user by number", "[alice]", "[1000]", "policy.yaml:6: expected the name of a user"},
		{"user nobody", "[alice]", "[nobody]", `policy.yaml:6: user "nobody" has uid 65534`},
		{"no users", "[alice]", "[]", "policy.yaml:6: expected a list such as"},
		{"null users", "[alice]", "", "policy.yaml:6: expected a list such as"},
		{"unknown group", "[dev]", "[devs]", `policy.yaml:7: there is no group "devs"`},
		{"group nogroup", "[dev]", "[nogroup]", `policy.yaml:7: group "nogroup" has gid 65534`},
		{"overflow uid", "users: [alice]", "uids: [65534]", "policy.yaml:6: 65534 stands for every uid"},
		{"largest uid", "users: [alice]", "uids: [4294967295]", "policy.yaml:6: 4294967295 stands for every uid"},
		{"negative uid", "users: [alice]", "uids: [-1]", `policy.yaml:6: expected a number, not "-1"`},
		{"uid too large", "users: [alice]", "uids: [4294967296]", "policy.yaml:6: expected a number"},
		{"uid in octal", "users: [alice]", "uids: [01000]", "policy.yaml:6: expected a number"},
		{"uid in hexadecimal", "users: [alice]", "uids: [0x3e8]", "policy.yaml:6: expected a number"},
		{"uid with underscore", "users: [alice]", "uids: [1_000]", "policy.yaml:6: expected a number"},
		{"uid as text", "users: [alice]", `uids: ["1000"]`, "policy.yaml:6: expected a number"},
		{"overflow gid", "groups: [dev]", "gids: [65534]", "policy.yaml:7: 65534 stands for every uid"},
		{"unit without suffix", "kubelet.service", "kubelet", `policy.yaml:8: "kubelet" is not the whole name`},
		{"unit is a slice", "kubelet.service", "system.slice", `policy.yaml:8: "system.slice" is not the whole name`},
		{"unit is a pattern", "kubelet.service", `"kube*.service"`, `policy.yaml:8: "kube*.service" is not the whole name`},
		{"unit is a path", "kubelet.service", "/system.slice/kubelet.service", "policy.yaml:8: "},
		{"key with a generation", "[web,", "[web.1,", `policy.yaml:9: "web.1" is one generation of a key; rules are about the set, web`},
		{"key in capitals", "[web,", "[Web,", `policy.yaml:9: "Web" is not a key's name`},
		{"star in the middle", "[web,", `["w*b",`, `policy.yaml:9: "w*b" is not a key's name`},
		{"two stars", "[web,", `["w**",`, `policy.yaml:9: "w**" is not a key's name`},
		{"generation before a star", "[web,", `["web.*",`, `policy.yaml:9: "web.*" is not a key's name`},
		{"key twice", "[web,", "[web, web,", `policy.yaml:9: "web" is in the list already`},
		{"unknown owner", "owner: self", "owner: me", `policy.yaml:10: expected self, machine, any or a uid, not "me"`},
		{"owner is a list", "owner: self", "owner: [self]", "policy.yaml:10: expected self, machine, any or a uid, not a list"},
		{"overflow owner", "owner: self", "owner: 65534", "policy.yaml:10: 65534 stands for every uid"},
		{"no owner", "    owner: self\n", "", "policy.yaml:4: the rule does not say whose keys"},
		{"unknown socket", "socket: use", "socket: both", "policy.yaml:11: expected use or admin"},
		{"status with a key", "[use, list]", "[use, status]", "policy.yaml:4: list-cards, manage-cards, status and audit concern no key"},
		{"cards with a key", "[use, list]", "[use, manage-cards]", "policy.yaml:4: list-cards, manage-cards, status and audit concern no key"},
		{"anyone and users", "    socket: use", "    anyone: true", "policy.yaml:11: anyone and users, groups, units contradict each other"},
		{"operation of a broker", "[use, list]", "[use, proxy]", `policy.yaml:5: there is no operation "proxy" for an agent`},
		{"operations of a broker", "[use, list]", "[use, credentials]", `policy.yaml:5: there is no operation "credentials" for an agent`},
		{"profiles", "    socket: use", "    profiles: [prod]", `policy.yaml:11: a rule of an agent has no word "profiles"`},
		{"for a user, something nobody reports", "    socket: use", "    for-users: [bob]", "policy.yaml:11: for-users goes with sign-tls-client and unlock only"},
		{"for an unknown user", "    socket: use", "    for-users: [bobb]", `policy.yaml:11: there is no user "bobb"`},
		{"for the overflow uid", "    socket: use", "    for-uids: [65534]", "policy.yaml:11: 65534 stands for every uid"},
		{"for no uid", "    socket: use", "    for-uids: []", "policy.yaml:11: expected a list such as"},
		{"for a unit without suffix", "    socket: use", "    for-units: [kubelet]", `policy.yaml:11: "kubelet" is not the whole name`},
		{"for somebody, and nobody named", "  - deny: [all]\n    anyone: true\n", "  - deny: [sign-tls-client]\n    for-uids: [7]\n", "policy.yaml:12: the rule names no callers"},
		{"denied to anyone for somebody", "  - deny: [all]\n", "  - deny: [sign-tls-client]\n    for-uids: [7]\n", "policy.yaml:13: a caller without a report may act for anyone"},
		{"anyone false", "anyone: true", "anyone: false", "policy.yaml:13: anyone is true or is left out"},
		{"nobody named", "    anyone: true\n", "", "policy.yaml:12: the rule names no callers"},
		{"name empty", "name: first", `name: ""`, "policy.yaml:4: \"\" cannot be the name of a rule"},
		{"name like a number of a rule", "name: first", `name: "#2"`, "policy.yaml:4: \"#2\" cannot be the name"},
		{"name default", "name: first", "name: default", "policy.yaml:4: \"default\" cannot be the name"},
		{"name with a newline", "name: first", `name: "a\nb"`, "policy.yaml:4: "},
		{"name twice", "  - deny:", "  - name: first\n    deny:", `policy.yaml:12: a rule named "first" is there already`},
		{"rules are a mapping", "rules:\n", "rules: {}\nmore:\n", "policy.yaml:3: rules must be a list of rules"},
		{"rule is a word", "  - deny: [all]\n    anyone: true\n", "  - deny\n", `policy.yaml:12: a rule of an agent must be a mapping of "word: value" lines, not a string`},
		{"second document", "    anyone: true\n", "    anyone: true\n---\nversion: 1\n", "policy.yaml:14: a second document"},
		{"anchor and alias", "[alice]", "&a [alice]\n    uids: *a", "policy.yaml:7: aliases such as *a are not accepted"},
		{"merge key", "    socket: use", "    <<: {socket: use}", "policy.yaml:11: merge keys (<<) are not accepted"},
		{"tag", "[alice]", "!x [alice]", "policy.yaml:6: tags such as !x are not accepted"},
		{"key with a tag", "    users:", "    !!binary users:", "policy.yaml:6: tags such as !!binary are not accepted"},
		{"broken YAML", "[alice]", "[alice", "policy.yaml:"},
		{"tab", "    users", "\tusers", "policy.yaml:"},
	}
	for _, c := range cases {
		t.Run(c.about, func(t *testing.T) {
			if strings.Count(baseline, c.old) < 1 {
				t.Fatalf("the baseline has no %q", c.old)
			}
			p, err := agentDialect().parse(world{}, "policy.yaml", []byte(strings.Replace(baseline, c.old, c.new, 1)))
			if err == nil {
				t.Fatalf("got %+v, want an error that starts %q", p, c.want)
			}
			for line := range strings.Lines(err.Error()) {
				if strings.HasPrefix(line, c.want) {
					return
				}
			}
			t.Errorf("got %v, want an error that starts %q", err, c.want)
		})
	}
}

func TestParseRefusesWhatIsNoPolicy(t *testing.T) {
	for _, text := range []string{
		"", "# nothing\n", "---\n", "null\n", "[]\n", "1\n", "version: 1\n", "version: 1\nrules:\n", "version: 1\nrules: []\n",
		"version: 1\nrules: {}\n", "version: 1\nrules: [{}]\n", "version: 1\nrules: [null]\n", "\x00", "\xff\xfe",
		strings.Repeat("# long\n", MaxFile/7+1),
	} {
		if p, err := agentDialect().parse(world{}, "policy.yaml", []byte(text)); err == nil {
			t.Errorf("%.40q: got %+v, want an error", text, p)
		} else if !strings.HasPrefix(err.Error(), "policy.yaml:") {
			t.Errorf("%.40q: got %v, want the file's name first", text, err)
		}
	}
}

func TestParseReportsEveryFault(t *testing.T) {
	text := strings.NewReplacer("alice", "alicce", "[dev]", "[devs]", "owner: self", "owner: me").Replace(baseline)
	_, err := agentDialect().parse(world{}, "policy.yaml", []byte(text))
	if err == nil {
		t.Fatal("got no error")
	}
	want := []string{"policy.yaml:6: ", "policy.yaml:7: ", "policy.yaml:10: "}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Fatalf("got %d faults, want %d: %v", len(lines), len(want), err)
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("got %q, want it to start %q", lines[i], want[i])
		}
	}
}

// The example has users and groups that every Debian has.
func TestParseFileTakesTheExample(t *testing.T) {
	p, err := ParseFile("../../packaging/examples/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(p.rules), 11; got != want {
		t.Errorf("got %d rules, want %d", got, want)
	}
}

// The policy in the package comment is one that works.
func TestPackageCommentParses(t *testing.T) {
	source, err := os.ReadFile("policy.go")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(source)) {
		if code, found := strings.CutPrefix(line, "//\t"); found {
			text.WriteString(code)
		}
	}
	if p := parse(t, text.String()); len(p.rules) != 2 {
		t.Errorf("got %d rules, want 2", len(p.rules))
	}
}

func TestParseFileErrors(t *testing.T) {
	if _, err := ParseFile(t.TempDir() + "/missing"); !os.IsNotExist(unwrapAll(err)) {
		t.Errorf("got %v, want that the file does not exist", err)
	}
}

func unwrapAll(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		if _, path := err.(*os.PathError); path {
			return err
		}
		err = u.Unwrap()
	}
}

func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("../../packaging/examples/policy.yaml")
	if err != nil {
		f.Fatal(err)
	}
	seeds := []string{
		baseline, string(example), "version: 1\nrules: [{allow: [status], uids: [0]}]", "{version: 1, rules: [{deny: [all], anyone: true}]}",
		"a: &a [*a]", "? [x]\n: y", "version: 1\nrules:\n  - *x", "%YAML 1.1\n---\n", "!!binary aGk=", "<<: {}",
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := agentDialect().parse(world{}, "f", data)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "f:") {
					t.Errorf("fault without file and line: %q", line)
				}
			}
			return
		}
		if len(p.rules) == 0 {
			t.Error("a policy without rules passed")
		}
		for i, r := range p.rules {
			if r.operations == 0 || r.operations&credentials != 0 || len(r.profiles) > 0 || !r.anyone && len(r.uids)+len(r.users)+len(r.gids)+len(r.groups)+len(r.units) == 0 {
				t.Errorf("rule %d says nothing: %s", i, fmt.Sprintf("%+v", r))
			}
		}
	})
}
