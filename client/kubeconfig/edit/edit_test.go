package edit

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"holdfast/client/kubeconfig"
	"holdfast/test/kubectl"
)

// person is a user's kubeconfig: with comments, unknown words and a layout of its own.
const person = `# mine
apiVersion: v1
kind: Config
clusters:
# the test cluster
- cluster:
    certificate-authority: ca.pem   # beside this file
    server: https://10.0.0.1:6443
    x-unknown: [1,   2]
  name: kind
- name: "other"
  cluster: {server: "https://other"}
users:

- name: kind-admin
  user:
    client-certificate-data: &cert QUJD
    client-key-data: *cert
contexts:
  - context:
      cluster: kind
      user: 'kind-admin'  # admin!
      namespace: tools
    name: kind
current-context: kind
preferences: {}
`

const asJSON = `{"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "kind", "cluster": {"server": "https://a"}}],
 "users": [ {"name": "kind-admin", "user": {"token": "t"}} ], "contexts": [{"name":"kind","context":{"cluster":"kind","user":"kind-admin"}}], "current-context": ""}`

// layouts are texts that can be edited.
func layouts() map[string]string {
	return map[string]string{
		"person":           person,
		"JSON":             asJSON,
		"JSON in one line": strings.ReplaceAll(asJSON, "\n", ""),
		"no last newline":  strings.TrimSuffix(person, "\n"),
		"CRLF":             strings.ReplaceAll(person, "\n", "\r\n"),
		"users null":       "contexts:\n- {name: kind, context: {cluster: kind, user: u}}\nclusters: null # none\nusers: null\ncurrent-context: ''\n",
		"users tilde":      "contexts:\n- {name: kind, context: {cluster: kind, user: u}}\nclusters: ~\nusers: ~\ncurrent-context: ''",
		"users missing":    "contexts:\n- {name: kind, context: {cluster: kind, user: u}}\nclusters:\ncurrent-context: ''\nusers:",
		"users empty":      "contexts:\n- {name: kind, context: {cluster: kind, user: u}}\nclusters: []\ncurrent-context: ''\nusers: [ ]  \n",
		"mixed":            "contexts: [\n {name: kind, context: {cluster: kind, user: u}}\n]\nclusters:\n    - name: kind\n      cluster: {}\ncurrent-context: \"\"\nusers: []\n...\n",
		"document mark":    "---\n" + person,
		"deep":             "clusters:\n      # deep\n      - name: kind\n        cluster: {}\nusers:\n    -   name: u\ncontexts:\n  - name: kind\n    context:\n        user: u\n        cluster: \"kind\"\ncurrent-context: \"\"\n",
		"names":            strings.NewReplacer("kind", "arn:aws:eks:eu-1:1:cluster/ü", "'arn:aws:eks:eu-1:1:cluster/ü-admin'", `"arn:aws:eks:eu-1:1:cluster/ü-admin"`).Replace(person),
	}
}

func contextOf(text string) string {
	if strings.Contains(text, "arn:") {
		return "arn:aws:eks:eu-1:1:cluster/ü"
	}
	return "kind"
}

func entry(context string) *Entry {
	return &Entry{
		Name: context + "-holdfast", Profile: "prod", Context: context, Namespace: "tools",
		Cluster: kubeconfig.Cluster{Server: "https://127.0.0.1:1", TLSServerName: "prod.holdfast.internal", CertificateAuthorityData: kubeconfig.Data("-----BEGIN\n")},
		User: kubeconfig.AuthInfo{Exec: &kubeconfig.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: "holdfast-exec-plugin", Args: []string{"--profile", "prod"},
			InstallHint: "a hint: \"with\" <quotes> # and more\nin two lines", InteractiveMode: "Never",
		}},
	}
}

// each calls f for every layout and every way to add to it.
func each(t *testing.T, f func(t *testing.T, text string, e *Entry)) {
	for about, text := range layouts() {
		for how, set := range map[string]func(*Entry){
			"new": func(*Entry) {}, "use": func(e *Entry) { e.Use = true }, "replace": func(e *Entry) { e.Replace = true },
			"replace and use": func(e *Entry) { e.Replace, e.Use = true, true },
		} {
			t.Run(about+"/"+how, func(t *testing.T) {
				e := entry(contextOf(text))
				set(e)
				f(t, text, e)
			})
		}
	}
}

func mustAdd(t *testing.T, text string, e *Entry) []byte {
	t.Helper()
	edited, err := Add([]byte(text), e)
	if err != nil {
		t.Fatal(err)
	}
	return edited
}

func mustParse(t *testing.T, text []byte) (map[string]*kubeconfig.Cluster, map[string]*kubeconfig.AuthInfo, map[string]*kubeconfig.Context, string) {
	t.Helper()
	path := t.TempDir() + "/config"
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := kubeconfig.Load(path)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return c.Clusters, c.Users, c.Contexts, c.CurrentContext
}

func TestAddSaysWhatItIsToSay(t *testing.T) {
	each(t, func(t *testing.T, text string, e *Entry) {
		clusters, users, contexts, current := mustParse(t, mustAdd(t, text, e))
		name := e.Name
		if e.Replace {
			name = e.Context
		}
		context := contexts[name]
		if context == nil || context.Cluster != e.Name || context.AuthInfo != e.Name {
			t.Fatalf("context %s: got %+v", name, context)
		}
		if c := clusters[e.Name]; c == nil || c.Server != e.Cluster.Server || c.TLSServerName != e.Cluster.TLSServerName || string(c.CertificateAuthorityData) != "-----BEGIN\n" {
			t.Errorf("cluster: got %+v", c)
		}
		user := users[e.Name]
		if user == nil || user.Exec == nil || user.Exec.InstallHint != e.User.Exec.InstallHint || user.Exec.Args[1] != "prod" {
			t.Fatalf("user: got %+v", user)
		}
		if r := RecordOf(user); r == nil || r.Profile != "prod" || r.Context != e.Context {
			t.Errorf("record: got %+v", r)
		}
		if e.Use && current != name {
			t.Errorf("current context: got %s, want %s", current, name)
		}
	})
}

func TestRemoveGivesTheSameBytes(t *testing.T) {
	each(t, func(t *testing.T, text string, e *Entry) {
		edited := mustAdd(t, text, e)
		if bytes.Equal(edited, []byte(text)) {
			t.Fatal("nothing was added")
		}
		restored, err := Remove(edited, e.Name)
		if err != nil {
			t.Fatal(err)
		}
		if string(restored) != text {
			t.Errorf("got\n%s\nwant\n%s", restored, text)
		}
	})
}

// Every line of the file stays, but for the words that are replaced.
func TestAddTouchesNothingElse(t *testing.T) {
	edited := string(mustAdd(t, person, entry("kind")))
	rest := edited
	for line := range strings.Lines(person) {
		before, after, found := strings.Cut(rest, line)
		if !found {
			t.Fatalf("the line %q is gone from\n%s", line, edited)
		}
		_, rest = before, after
	}
}

func TestAddAgainChanges(t *testing.T) {
	each(t, func(t *testing.T, text string, e *Entry) {
		first := mustAdd(t, text, e)
		e.Cluster.Server = "https://127.0.0.1:2"
		second := mustAdd(t, string(first), e)
		if want := strings.Replace(string(first), "127.0.0.1:1", "127.0.0.1:2", 1); string(second) != want {
			t.Errorf("got\n%s\nwant\n%s", second, want)
		}
	})
}

// Entries are taken out in any order.
func TestTwoEntries(t *testing.T) {
	for _, order := range [][2]string{{"a", "b"}, {"b", "a"}} {
		for _, text := range []string{person, asJSON} {
			a, b := entry("kind"), entry("kind")
			a.Name, b.Name, b.Replace = "a", "b", true
			both := mustAdd(t, string(mustAdd(t, text, a)), b)
			for _, name := range order {
				var err error
				if both, err = Remove(both, name); err != nil {
					t.Fatal(err)
				}
			}
			if string(both) != text {
				t.Errorf("%v: got\n%s\nwant\n%s", order, both, text)
			}
		}
	}
}

// Remove keeps the changes that a user has made since Add.
func TestRemoveAfterOthersEdited(t *testing.T) {
	e := entry("kind")
	e.Replace, e.Use = true, true
	text := "current-context: other\n" + strings.Replace(person, "current-context: kind\n", "", 1)
	edited := string(mustAdd(t, text, e))
	for old, new := range map[string]string{
		"current-context: kind":               "current-context: third",
		"user: kind-holdfast  # admin!":       "user: other",
		"    server: https://127.0.0.1:1\n":   "    server: https://127.0.0.1:1\n    # tunnel\n\n    proxy-url: http://p\n",
		"# the test cluster":                  "- name: more\n  cluster: {}\n# the test cluster",
		"- name: kind-holdfast\n    cluster:": "- name: kind-holdfast\n    cluster:",
	} {
		changed := strings.Replace(edited, old, new, 1)
		restored, err := Remove([]byte(changed), e.Name)
		if err != nil {
			t.Errorf("%s: %v", new, err)
			continue
		}
		clusters, users, contexts, current := mustParse(t, restored)
		if clusters[e.Name] != nil || users[e.Name] != nil || contexts["kind"].Cluster != "kind" {
			t.Errorf("%s: got\n%s", new, restored)
		}
		if strings.HasSuffix(new, "third") && current != "third" || strings.HasPrefix(new, "user") && contexts["kind"].AuthInfo != "other" {
			t.Errorf("%s: got\n%s", new, restored)
		}
	}
}

func TestAddRefuses(t *testing.T) {
	cases := []struct {
		about, old, new, want string
		set                   func(*Entry)
		layout                bool
	}{
		{"no such context", "name: kind\ncurrent", "name: kinds\ncurrent", `there is no context named "kind"`, nil, false},
		{"a user of that name", "kind-admin\n", "kind-holdfast\n", `there is a user named "kind-holdfast" already`, nil, false},
		{"a cluster of that name", `"other"`, "kind-holdfast", `there is a cluster named "kind-holdfast" already`, nil, false},
		{"two users of one name", `"other"`, "kind", `there are two clusters named "kind"`, nil, false},
		{"word twice", "kind: Config", "apiVersion: v1", "kubeconfig:3: ", nil, false},
		{"no users", "users:", "user:", `it has no users; a line "users: []" is enough`, nil, true},
		{"aliased list", "users:\n", "x: &x []\nusers: *x\ny:\n", "users", nil, true},
		{"anchored list", "users:\n", "users: &x\n", "users", nil, true},
		{"two documents", "preferences", "---\npreferences", "more than one document", nil, true},
		{"byte order mark", "# mine", "\ufeff# mine", "not plain UTF-8", nil, true},
		{"line separator", "# mine", "# mine\u2028", "not plain UTF-8", nil, true},
		{"anchored user to replace", "'kind-admin'", "&a kind-admin", "user is missing, empty, or written", func(e *Entry) { e.Replace = true }, true},
		{"no user to replace", "user: 'kind-admin'", "usr: x", "user is missing", func(e *Entry) { e.Replace = true }, true},
		{"no current context to use", "current-context: kind\n", "", "current-context is missing", func(e *Entry) { e.Use = true }, true},
		{
			"a context that stands for two", "namespace: tools\n    name: kind\n", "namespace: tools\n    name: kind\n  - {name: two, context: *c}\n",
			"would have another content", func(e *Entry) { e.Replace = true }, true,
		},
		{"list", person, "- a\n", "", nil, false},
		{"nothing", person, "", "", nil, false},
		{"broken", "users:", "users: [", "", nil, false},
	}
	for _, c := range cases {
		t.Run(c.about, func(t *testing.T) {
			text := strings.Replace(person, c.old, c.new, 1)
			if strings.Contains(text, "*c}") {
				text = strings.Replace(text, "- context:\n", "- context: &c\n", 1)
			}
			if text == person {
				t.Fatalf("nothing changed: no %q", c.old)
			}
			e := entry("kind")
			if c.set != nil {
				c.set(e)
			}
			got, err := Add([]byte(text), e)
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrLayout) != c.layout {
				t.Errorf("got %s, %v, want an error with %q (layout: %t)", got, err, c.want, c.layout)
			}
		})
	}
	if _, err := Remove([]byte(person), "kind-admin"); err == nil {
		t.Error("Remove took out a user that is not ours")
	}
}

// The author of the file also chooses the text that Remove restores.
func TestRemoveOfForgedRecord(t *testing.T) {
	e := entry("kind")
	e.Replace = true
	good := string(mustAdd(t, person, e))
	for _, forged := range []string{
		`"kind\n      x: other"`, `"kind\n    name: kind\n  - name: more\n    context:\n      cluster: kind"`, `"[unclosed"`, `"kind\ncurrent-context: x"`,
	} {
		text := strings.Replace(good, "cluster: kind\n          user", "cluster: "+forged+"\n          user", 1)
		if text == good {
			t.Fatalf("there is no record in\n%s", good)
		}
		if got, err := Remove([]byte(text), e.Name); !errors.Is(err, ErrLayout) {
			t.Errorf("%s: got %s, %v, want an error", forged, got, err)
		}
	}
}

// A stock kubectl reads what is written.
func TestKubectlJudges(t *testing.T) {
	program := kubectl.Path(t)
	for about, text := range layouts() {
		e := entry(contextOf(text))
		e.Use = true
		path := put(t, t.TempDir()+"/config", string(mustAdd(t, text, e)))
		cmd := exec.Command(program, "--kubeconfig", path, "config", "view", "--minify", "--raw", "-o", "jsonpath={.clusters[0].cluster.server} {.users[0].user.exec.installHint}")
		out, err := cmd.CombinedOutput()
		if want := e.Cluster.Server + " " + e.User.Exec.InstallHint; err != nil || string(out) != want {
			t.Errorf("%s: got %q, %v, want %q", about, out, err, want)
		}
	}
}

func FuzzAddRemove(f *testing.F) {
	seeds := []string{"users: [\n]\ncontexts: [{name: kind}]\nclusters:\n", "contexts:\n-\n  name: kind\nusers: !!seq []\nclusters: &a\n- x: *a\n"}
	for _, text := range layouts() {
		seeds = append(seeds, text)
	}
	if len(seeds) < 3 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		for how := range 4 {
			f.Add([]byte(s), how)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, how int) {
		e := entry(contextOf(string(data)))
		e.Replace, e.Use = how&1 != 0, how&2 != 0
		edited, err := Add(data, e)
		if err != nil {
			return
		}
		restored, err := Remove(edited, e.Name)
		if err != nil {
			t.Fatal(err)
		}
		want := data
		if d, err := parse(data); err == nil && d.record(e.Name) != nil { // then Add has changed what was there
			if want, err = Remove(data, e.Name); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(restored, want) {
			t.Errorf("got %q, want %q", restored, want)
		}
	})
}
