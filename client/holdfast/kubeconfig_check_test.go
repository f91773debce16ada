package main

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/client/enroll"
	"holdfast/client/profile"
)

func TestKubeconfigCheck(t *testing.T) {
	exec := "holdfast-exec-plugin\n"
	cases := []struct{ about, old, new, want string }{
		{"token beside exec", "    exec:\n", "    token: x\n    exec:\n", "user dev-holdfast: the plugin is not run: kubectl takes the user's token instead"},
		{"client certificate beside exec", "    exec:\n", "    client-certificate: x\n    exec:\n", "the plugin is not run: kubectl takes the user's client-certificate"},
		{"auth-provider beside exec", "    exec:\n", "    auth-provider: {name: oidc}\n    exec:\n", "auth-provider beside exec"},
		{"not in PATH", "command: " + exec, "command: /nowhere/" + exec, "the plugin cannot be run"},
		{"by a shell", "command: " + exec + "      args:\n        - --profile\n        - dev\n", "command: sh\n      args: [-c, 'holdfast-exec-plugin --profile dev; true']\n", "the plugin is run by sh: its ticket counts for that process"},
		{"other version", "apiVersion: client.authentication.k8s.io/v1\n", "apiVersion: client.authentication.k8s.io/v1alpha1\n", "kubectl does not know the apiVersion"},
		{"no interactiveMode", "      interactiveMode: Never\n", "", "interactiveMode is missing"},
		{"interactive", "interactiveMode: Never", "interactiveMode: Always", "interactiveMode Always"},
		{"no profile", "- --profile\n        - dev\n", "- --profile=prod\n", "there is no profile prod"},
		{"mode not allowed", "        - dev\n", "        - dev\n        - --mode=token\n", "profile dev does not allow mode token"},
		{"token without cluster info", "        - dev\n", "        - dev\n        - --mode=token\n", "provideClusterInfo is not true"},
		{"other port", "127.0.0.1:16500", "127.0.0.1:16501", "its server is https://127.0.0.1:16501 and has to be https://127.0.0.1:16500"},
		{"other name", "tls-server-name: dev.", "tls-server-name: prod.", `its tls-server-name is "prod.holdfast.internal" and has to be "dev.`},
		{"other CA", "certificate-authority-data:", "certificate-authority: ca.pem\n    x:", "its certificate-authority is not the one that the broker presents"},
		{"proxy", "tls-server-name: dev.", "proxy-url: http://p\n    tls-server-name: dev.", "its proxy-url is not"},
		{"insecure", "certificate-authority-data:", "insecure-skip-tls-verify: true\n    certificate-authority-data:", "context dev-holdfast: insecure-skip-tls-verify"},
		{"no cluster", "    cluster: dev-holdfast\n    user:", "    cluster: gone\n    user:", `its cluster "gone" is not there`},
	}
	h := setUp(t)
	h.original = strings.ReplaceAll(h.original, "kind-dev", "dev")
	check(t, os.WriteFile(h.config, []byte(h.original), 0o640))
	h.run("kubeconfig", "check").want(t, 0, "no user runs holdfast-exec-plugin")
	h.run("kubeconfig", "add", "dev", "--key", "alice").want(t, 0)
	h.run("kubeconfig", "check").want(t, 0, "profile dev, mode proxy")
	good := h.text(t)
	for _, c := range cases {
		t.Run(c.about, func(t *testing.T) {
			if !strings.Contains(good, c.old) {
				t.Fatalf("there is no %q in\n%s", c.old, good)
			}
			check(t, os.WriteFile(h.config, []byte(strings.Replace(good, c.old, c.new, 1)), 0o600))
			got := h.run("kubeconfig", "check", "--json")
			var found []finding
			check(t, json.Unmarshal([]byte(got.stdout), &found))
			bad := slices.ContainsFunc(found, func(f finding) bool {
				return f.State == stateBad && f.Hint != "" && strings.Contains(f.Subject+": "+f.Message, c.want)
			})
			if got.code != 1 || !bad {
				t.Errorf("got exit code %d, %+v, want %q", got.code, found, c.want)
			}
		})
	}
}

func TestKubeconfigCheckBroker(t *testing.T) {
	h := setUp(t)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 0)
	h.broker.Endpoint.Address = "127.0.0.1:999"
	got := h.run("kubeconfig", "check")
	if got.code != 1 || !strings.Contains(got.stdout, "has to be https://127.0.0.1:999") {
		t.Errorf("got %+v", got)
	}
	check(t, os.WriteFile(h.profiles+"/kind-dev.yaml", []byte("key: A\n"), 0o600))
	if got := h.run("kubeconfig", "check"); got.code != 1 || !strings.Contains(got.stdout, "kind-dev.yaml:1: key: ") {
		t.Errorf("a faulty profile: got %+v", got)
	}
	t.Setenv("HOLDFAST_BROKER_SOCKET", "/no/such.sock")
	if got := h.run("kubeconfig", "check"); got.code != 1 || !strings.Contains(got.stdout, "no broker listens") {
		t.Errorf("no broker: got %+v", got)
	}
}

// The advice about one context, followed, corrects it and leaves the others.
func TestKubeconfigCheckAdvice(t *testing.T) {
	h := setUp(t)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 0)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice", "--name", "kept").want(t, 0)
	h.run("kubeconfig", "add", "ü", "--key", "alice", "--profile", "other", "--replace", "--name", "replaced").want(t, 0)
	good := h.text(t)
	contexts := len(h.kubectlView(t).Contexts)
	for _, c := range []struct{ name, context, advice string }{
		{"kept", "kept", "holdfast kubeconfig add kind-dev --key alice --profile kind-dev --name kept"},
		{"replaced", "ü", "holdfast kubeconfig remove 'ü', then holdfast kubeconfig add 'ü' --key alice --profile other --name replaced --replace"},
	} {
		head := "- name: " + c.name + "\n  cluster:\n    server: https://127.0.0.1:"
		if !strings.Contains(good, head) {
			t.Fatal(good)
		}
		check(t, os.WriteFile(h.config, []byte(strings.Replace(good, head, head+"1", 1)), 0o600))
		var found []finding
		check(t, json.Unmarshal([]byte(h.run("kubeconfig", "check", "--json").stdout), &found))
		found = slices.DeleteFunc(found, func(f finding) bool { return f.State != stateBad })
		if len(found) != 1 || found[0].Subject != "context "+c.context || found[0].Hint != c.advice {
			t.Fatalf("got %+v, want the context %s and the advice %s", found, c.context, c.advice)
		}
		for _, command := range strings.Split(found[0].Hint, ", then ") {
			words := strings.Fields(strings.ReplaceAll(command, "'", ""))
			h.run(words[1:]...).want(t, 0)
		}
		h.run("kubeconfig", "check").want(t, 0)
		if got := len(h.kubectlView(t).Contexts); got != contexts {
			t.Errorf("after the advice about %s there are %d contexts, want %d", c.context, got, contexts)
		}
	}
	// A context of the user's own that shares a user keeps it.
	shared := strings.Replace(good, "contexts:\n", "contexts:\n- {name: mine, context: {cluster: kind-dev, user: replaced}}\n", 1)
	check(t, os.WriteFile(h.config, []byte(strings.Replace(shared, "replaced\n  cluster:\n    server: https://127.0.0.1:", "replaced\n  cluster:\n    server: https://127.0.0.1:1", 1)), 0o600))
	got := h.run("kubeconfig", "check").stdout
	for _, want := range []string{"kubectl config set-context mine --cluster=replaced", "kubectl config set-cluster replaced --server=https://127.0.0.1:16500 --tls-server-name=other.holdfast.internal"} {
		if !strings.Contains(got, want) || strings.Contains(got, "kubeconfig remove") {
			t.Errorf("got %s, want %s and no removal", got, want)
		}
	}
}

// A shell that becomes the plugin is not in its way.
func TestKubeconfigCheckOfAnExec(t *testing.T) {
	h := setUp(t)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 0)
	direct := "command: holdfast-exec-plugin\n      args:\n        - --profile\n        - kind-dev\n"
	if !strings.Contains(h.text(t), direct) {
		t.Fatal(h.text(t))
	}
	text := strings.Replace(h.text(t), direct, "command: sh\n      args: [-c, 'exec holdfast-exec-plugin --profile \"kind-dev\";']\n", 1)
	check(t, os.WriteFile(h.config, []byte(text), 0o600))
	h.run("kubeconfig", "check").want(t, 0, "profile kind-dev, mode proxy")
}

func TestKubeconfigList(t *testing.T) {
	h := setUp(t)
	if got := h.run("kubeconfig", "list"); got.code != 0 || got.stdout != "" || !strings.Contains(got.stderr, "there is no profile in "+h.profiles) {
		t.Errorf("got %+v", got)
	}
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 0)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice", "--name", "second").want(t, 0)
	check(t, os.WriteFile(h.profiles+"/bad.yaml", []byte("key: A\n"), 0o600))
	h.run("kubeconfig", "list").want(t, 0, "kind-dev", "https://10.0.0.1:6443", "kind-dev-holdfast, second")
	var got []listed
	check(t, json.Unmarshal([]byte(h.run("kubeconfig", "list", "--json").stdout), &got))
	if len(got) != 2 || got[0].Key != "alice" || len(got[0].Contexts) != 2 || !strings.Contains(got[1].Fault, "bad.yaml:1: ") {
		t.Errorf("got %+v", got)
	}
	h.run("__complete", "kubeconfig", "remove", "").want(t, 0, "kind-dev\n", "second\n")
	h.run("__complete", "kubeconfig", "add", "").want(t, 0, "insecure\n")
	h.run("__complete", "kubeconfig", "add", "kind-dev", "--key", "").want(t, 0, "alice\ttls-client")
	h.run("__complete", "kubeconfig", "add", "kind-dev", "--profile", "").want(t, 0, "kind-dev\n")
	h.run("__complete", "kubeconfig", "add", "kind-dev", "--mode", "").want(t, 0, "certificate\n")
}

func TestKubeconfigRemove(t *testing.T) {
	h := setUp(t)
	h.run("kubeconfig", "remove", "nothing").want(t, 1, `neither a profile "nothing" nor a context`, "holdfast kubeconfig list")
	h.run("kubeconfig", "remove", "kind-dev").want(t, 1, "neither a profile")
	h.run("kubeconfig", "remove", "../x").want(t, 1, "neither a profile")
	h.unchanged(t)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 0)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice", "--name", "second", "--use").want(t, 0)
	got := h.run("kubeconfig", "remove", "second")
	if got.code != 0 || !strings.Contains(got.stderr, "profile kind-dev stays: 1 context uses it: kind-dev-holdfast") {
		t.Errorf("got %+v", got)
	}
	if _, err := os.Stat(h.profiles + "/kind-dev.yaml"); err != nil {
		t.Error(err)
	}
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice", "--name", "second").want(t, 0)
	h.run("kubeconfig", "remove", "kind-dev").want(t, 0, "removed kind-dev-holdfast", "removed second", "removed profile kind-dev")
	h.unchanged(t)
	// One that renewals work by stays, until it is named itself.
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 0)
	profiles, _, err := profile.Load(h.profiles)
	check(t, err)
	profiles["kind-dev"].Renewal.SignerName = enroll.PeopleSigner
	check(t, profile.Write(h.profiles, profiles["kind-dev"]))
	got = h.run("kubeconfig", "remove", "kind-dev-holdfast")
	if got.code != 0 || !strings.Contains(got.stderr, "profile kind-dev stays: holdfast renew --due") {
		t.Errorf("got %+v", got)
	}
	h.run("kubeconfig", "list").want(t, 0, "kind-dev", "alice")
	h.run("kubeconfig", "remove", "kind-dev").want(t, 0, "removed profile kind-dev")
	// A profile that no context uses goes too.
	check(t, profile.Write(h.profiles, &profile.Profile{Name: "lone", Key: "k", Cluster: profile.Cluster{Server: "https://a", CertificateAuthorityData: string(h.ca)}}))
	h.run("kubeconfig", "remove", "lone").want(t, 0, "removed profile lone")
	h.unchanged(t)
}

// Another program's lock is not broken.
func TestKubeconfigLocked(t *testing.T) {
	h := setUp(t)
	check(t, os.WriteFile(h.config+".lock", nil, 0o600))
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 1, "another program is editing it", "remove "+h.config+".lock when")
	h.unchanged(t)
}

// Only these commands write kubeconfigs: renewal and enrolment, in the same
// program, cannot.
func TestOnlyKubeconfigCommandsEdit(t *testing.T) {
	files, err := filepath.Glob("*.go")
	check(t, err)
	found := 0
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		check(t, err)
		for _, i := range f.Imports {
			if i.Path.Value != `"holdfast/client/kubeconfig/edit"` {
				continue
			}
			found++
			if !strings.HasPrefix(name, "kubeconfig_") {
				t.Errorf("%s imports the editor of kubeconfigs", name)
			}
		}
	}
	if found == 0 {
		t.Error("nobody imports the editor: the test is wrong")
	}
}
