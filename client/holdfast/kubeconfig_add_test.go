package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdfast/client/clienttest"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
)

func TestKubeconfigAdd(t *testing.T) {
	h := setUp(t)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 0,
		"kind-dev, in "+h.profiles, "kubectl --context kind-dev-holdfast auth whoami",
		"kubectl.config.k8s.io/v1beta1", "kind: Preference", "credentialPluginPolicy: Allowlist", "- command: "+filepath.Dir(h.config)+"/bin/holdfast-exec-plugin\n")
	v := h.kubectlView(t)
	wantCluster := map[string]any{
		"server": "https://127.0.0.1:16500", "tls-server-name": "kind-dev.holdfast.internal", "disable-compression": true,
		"certificate-authority-data": base64.StdEncoding.EncodeToString([]byte(h.broker.Endpoint.Certificate)),
	}
	if got := v.cluster("kind-dev-holdfast"); !reflect.DeepEqual(got, wantCluster) {
		t.Errorf("cluster: got %v, want %v", got, wantCluster)
	}
	wantExec := map[string]any{
		"apiVersion": "client.authentication.k8s.io/v1", "command": "holdfast-exec-plugin", "args": []any{"--profile", "kind-dev"},
		"env": nil, "installHint": installHint, "interactiveMode": "Never", "provideClusterInfo": false,
	}
	user := v.user("kind-dev-holdfast")
	if !reflect.DeepEqual(user["exec"], wantExec) || user["token"] != nil || user["as"] != "boss" {
		t.Errorf("user: got %v, want exec %v, no token, and the old user's impersonation", user, wantExec)
	}
	if got, want := v.context("kind-dev-holdfast"), (map[string]any{"cluster": "kind-dev-holdfast", "user": "kind-dev-holdfast", "namespace": "tools"}); !reflect.DeepEqual(got, want) {
		t.Errorf("context: got %v, want %v", got, want)
	}
	if v.Current != "kind-dev" || v.user("admin")["token"] != "hunter2" {
		t.Errorf("the rest changed: %+v", v)
	}
	profiles, faults, err := profile.Load(h.profiles)
	check(t, err)
	want := profile.Cluster{
		Server: "https://10.0.0.1:6443", CertificateAuthorityData: string(h.ca), TLSServerName: "kubernetes",
		ProxyURL: "socks5://127.0.0.1:1080", DisableCompression: true,
	}
	if p := profiles["kind-dev"]; p == nil || p.Cluster != want || p.Key != "alice" || len(p.Modes) != 1 || p.Proxy.Port != 0 {
		t.Errorf("profile: got %+v, %v, want %+v", p, faults, want)
	}
}

// Everything that add does, remove takes back.
func TestKubeconfigAddRemove(t *testing.T) {
	cases := map[string][]string{
		"new":         {},
		"used":        {"--use"},
		"replaced":    {"--replace"},
		"both":        {"--replace", "--use"},
		"named":       {"--name", "mine", "--profile", "p"},
		"port":        {"--dedicated-port"},
		"token":       {"--mode", "token", "--namespace", "ns", "--service-account", "sa"},
		"certificate": {"--mode", "certificate"},
	}
	for about, args := range cases {
		t.Run(about, func(t *testing.T) {
			h := setUp(t)
			h.run(append([]string{"kubeconfig", "add", "kind-dev", "--key", "alice"}, args...)...).want(t, 0)
			h.kubectlView(t)
			h.run("kubeconfig", "check").want(t, 0)
			name := "kind-dev-holdfast"
			if strings.Contains(strings.Join(args, " "), "--replace") {
				name = "kind-dev"
			}
			if about == "named" {
				name = "mine"
			}
			h.run("kubeconfig", "remove", name).want(t, 0, "removed profile ")
			h.unchanged(t)
			if info, err := os.Stat(h.config); err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("mode: got %v, %v", info.Mode(), err)
			}
		})
	}
}

func TestKubeconfigReplaceAndUse(t *testing.T) {
	h := setUp(t)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice", "--replace").want(t, 0, "kubectl --context kind-dev auth whoami")
	v := h.kubectlView(t)
	if got := v.context("kind-dev"); got["user"] != "kind-dev-holdfast" || got["cluster"] != "kind-dev-holdfast" || v.context("kind-dev-holdfast") != nil {
		t.Errorf("got %v", v.Contexts)
	}
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 1, `context "kind-dev" uses a key already`, "holdfast kubeconfig remove kind-dev")
	h.run("kubeconfig", "remove", "kind-dev").want(t, 0)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice", "--use").want(t, 0)
	if got := h.kubectlView(t).Current; got != "kind-dev-holdfast" {
		t.Errorf("current context: got %s", got)
	}
	h.run("kubeconfig", "add", "kind-dev-holdfast", "--key", "alice").want(t, 1, "uses a key already", "add kind-dev instead")
}

// A port of its own needs no name: the certificate is good for the address.
func TestKubeconfigDedicatedPort(t *testing.T) {
	h := setUp(t)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice", "--dedicated-port=17001").want(t, 0)
	if c := h.kubectlView(t).cluster("kind-dev-holdfast"); c["server"] != "https://127.0.0.1:17001" || c["tls-server-name"] != nil {
		t.Errorf("got %v", c)
	}
	// A port that is a word of its own, before and after the context.
	for _, args := range []string{"kind-dev --key alice --dedicated-port 17002", "--dedicated-port 17002 kind-dev --key alice"} {
		h.run(append([]string{"kubeconfig", "add"}, strings.Fields(args)...)...).want(t, 0)
		if c := h.kubectlView(t).cluster("kind-dev-holdfast"); c["server"] != "https://127.0.0.1:17002" {
			t.Errorf("%s: got %v", args, c)
		}
	}
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice", "--dedicated-port=17001").want(t, 0)
	// Adding again keeps the port.
	h.run("kubeconfig", "add", "kind-dev", "--key", "team", "--dedicated-port").want(t, 0)
	profiles, _, err := profile.Load(h.profiles)
	check(t, err)
	if p := profiles["kind-dev"]; p.Proxy.Port != 17001 || p.Key != "team" {
		t.Errorf("got %+v", p)
	}
}

// Client libraries of other languages get an entry that the least able can use.
func TestKubeconfigOtherLanguages(t *testing.T) {
	h := setUp(t)
	for _, c := range []struct{ args, version, added string }{
		{"--preset other-languages", "client.authentication.k8s.io/v1beta1", "--api-version client.authentication.k8s.io/v1beta1"},
		{"--preset other-languages --api-version v1", "client.authentication.k8s.io/v1", ""},
		{"--api-version v1beta1", "client.authentication.k8s.io/v1beta1", "--api-version client.authentication.k8s.io/v1beta1"},
		{"--api-version client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1", ""},
	} {
		h.run(append([]string{"kubeconfig", "add", "kind-dev", "--key", "alice"}, strings.Fields(c.args)...)...).want(t, 0)
		v := h.kubectlView(t)
		exec, want := v.user("kind-dev-holdfast")["exec"].(map[string]any), []any{"--profile", "kind-dev"}
		for _, word := range strings.Fields(c.added) {
			want = append(want, word)
		}
		if exec["apiVersion"] != c.version || !reflect.DeepEqual(exec["args"], want) {
			t.Errorf("%s: got %v, want %s and %v", c.args, exec, c.version, want)
		}
		h.run("kubeconfig", "check").want(t, 0)
	}
}

func TestKubeconfigNoPool(t *testing.T) {
	h := setUp(t)
	for _, c := range []struct {
		args string
		want bool
	}{{"--no-pool", true}, {"", true}, {"--no-pool=false", false}} { // adding again changes what is said alone
		h.run(append([]string{"kubeconfig", "add", "kind-dev", "--key", "alice"}, strings.Fields(c.args)...)...).want(t, 0)
		profiles, _, err := profile.Load(h.profiles)
		check(t, err)
		if profiles["kind-dev"].Proxy.NoPool != c.want {
			t.Errorf("after %q: got %v", c.args, profiles["kind-dev"].Proxy.NoPool)
		}
	}
}

// A warning comes at once where no approver exists.
func TestKubeconfigCertificateOfPerson(t *testing.T) {
	h := setUp(t)
	ca := clienttest.NewCA(t)
	for _, c := range []struct {
		person string
		args   []string
		noted  bool
	}{{"alice", nil, true}, {"alice", []string{"--signer-name", "example.com/people"}, false}, {"system:node:w1", nil, false}} {
		h.agent.Change("alice", func(k *agentwire.Key) { k.Chain = [][]byte{ca.IssueFor(c.person, ca.Certificate.PublicKey)} })
		got := h.run(append([]string{"kubeconfig", "add", "kind-dev", "--key", "alice", "--mode", "certificate"}, c.args...)...)
		if noted := strings.Contains(got.stderr, "no cluster approves the certificates of alice"); got.code != 0 || noted != c.noted {
			t.Errorf("%s %q: got %+v", c.person, c.args, got)
		}
		check(t, os.RemoveAll(h.profiles))
	}
}

func TestKubeconfigMintingModes(t *testing.T) {
	h := setUp(t)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice", "--mode", "token", "--namespace", "ns", "--service-account", "sa",
		"--audience", "a", "--audience", "b", "--lifetime", "15m").want(t, 0)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice", "--mode", "certificate", "--name", "c", "--signer-name", "example.com/people").want(t, 0)
	v := h.kubectlView(t)
	for name, mode := range map[string]string{"kind-dev-holdfast": "token", "c": "certificate"} {
		cluster, exec := v.cluster(name), v.user(name)["exec"].(map[string]any)
		want := map[string]any{
			"server": "https://10.0.0.1:6443", "tls-server-name": "kubernetes", "proxy-url": "socks5://127.0.0.1:1080", "disable-compression": true,
			"certificate-authority-data": base64.StdEncoding.EncodeToString(h.ca),
		}
		if !reflect.DeepEqual(cluster, want) {
			t.Errorf("%s: got %v, want %v", name, cluster, want)
		}
		if exec["provideClusterInfo"] != true || !reflect.DeepEqual(exec["args"], []any{"--profile", "kind-dev", "--mode", mode}) {
			t.Errorf("%s: got %v", name, exec)
		}
	}
	profiles, _, err := profile.Load(h.profiles)
	check(t, err)
	p := profiles["kind-dev"]
	if words(p.Modes) != "token, certificate" || p.Token.Namespace != "ns" || p.Token.ServiceAccount != "sa" || words(p.Token.Audiences) != "a, b" ||
		p.Token.Lifetime != 15*time.Minute || p.Certificate.SignerName != "example.com/people" {
		t.Errorf("got %+v", p)
	}
	h.run("kubeconfig", "check").want(t, 0)
}

func TestKubeconfigAddRefuses(t *testing.T) {
	h := setUp(t)
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"", 2, []string{"CONTEXT is missing"}},
		{"kind-dev", 2, []string{"--key is missing"}},
		{"kind-dev --key UPPER", 2, []string{"not a key name"}},
		{"kind-dev --key alice --mode magic", 2, []string{`there is no mode "magic"`, "hint: one of proxy, certificate, token"}},
		{"kind-dev --key alice --namespace x", 2, []string{"--namespace is for mode token"}},
		{"kind-dev --key alice --lifetime 1h", 2, []string{"--lifetime is for what is minted"}},
		{"kind-dev --key alice --mode certificate --no-pool", 2, []string{"--no-pool is for mode proxy"}},
		{"kind-dev --key alice --mode token", 2, []string{"mode token needs --namespace and --service-account"}},
		{"kind-dev --key alice --mode token --namespace n --service-account s --lifetime 1m", 1, []string{"token.lifetime: 1m0s is shorter than"}},
		{"kind-dev --key alice --dedicated-port=0", 2, []string{"--dedicated-port wants a port"}},
		{"kind-dev --key alice --dedicated-port 0", 2, []string{"--dedicated-port wants a port"}},
		{"17 --key alice --dedicated-port 18", 2, []string{"17 or 18 is the port", "hint: write --dedicated-port=PORT"}},
		{"kind-dev --key alice --dedicated-port auto-x", 2, []string{`unexpected argument "auto-x"`}},
		{"kind-dev --key alice --preset java", 2, []string{`there is no preset "java"`, "hint: one of kubectl, other-languages"}},
		{"kind-dev --key alice --preset other-languages --mode token", 2, []string{"--preset other-languages and --mode token exclude each other"}},
		{"kind-dev --key alice --api-version v1alpha1", 2, []string{`kubectl knows no API version "v1alpha1"`}},
		{"kind-dev --key alice --profile A", 2, []string{"--profile: "}},
		{"ü --key alice", 2, []string{"no profile can be named after", "--profile names it"}},
		{"other --key alice", 1, []string{`no context "other"`, "hint: it has bare, insecure, kind-dev, lost"}},
		{"lost --key alice", 1, []string{`names the cluster "gone", which is not there`}},
		{"insecure --key alice", 1, []string{"insecure-skip-tls-verify", "hint: get the cluster's CA"}},
		{"bare --key alice", 1, []string{"has no certificate-authority", "hint: kubectl config set-cluster bare --embed-certs"}},
		{"plain --key alice", 1, []string{"cluster.server: it does not start with https://"}},
		{"kind-dev --key nobody", 1, []string{`there is no key "nobody"`, "holdfast key list"}},
		{"kind-dev --key web", 1, []string{"key web is a tls-server key"}},
		{"kind-dev --key alice --name admin", 1, []string{`there is a user named "admin" already`}},
		{"kind-dev --key alice --name bare", 1, []string{`there is a cluster named "bare" already`}},
		{"kind-dev --key alice --kubeconfig /no/such", 1, []string{"/no/such", "hint: --kubeconfig"}},
	} {
		h.run(append([]string{"kubeconfig", "add"}, strings.Fields(c.args)...)...).want(t, c.code, c.want...)
		h.unchanged(t)
	}
}

// Without the broker, its proxy's address is unknown; the other modes need
// no proxy.
func TestKubeconfigAddWithoutBroker(t *testing.T) {
	h := setUp(t)
	t.Setenv("HOLDFAST_BROKER_SOCKET", "/no/such.sock")
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 3, "no broker listens at /no/such.sock", "hint: start one")
	h.unchanged(t)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice", "--mode", "certificate").want(t, 0)
}

func TestKubeconfigAddBrokerSaysNo(t *testing.T) {
	h := setUp(t)
	h.broker.fault = &fault.Error{Kind: fault.Denied, Message: "you may not ask", Hint: "be root"}
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 4, "you may not ask", "hint: be root")
	h.broker.fault, h.broker.Endpoint.Certificate = nil, ""
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 1, "does not say where its proxy listens")
	h.unchanged(t)
}

// A profile of that name for another cluster is not overwritten.
func TestKubeconfigAddOtherServer(t *testing.T) {
	h := setUp(t)
	check(t, profile.Write(h.profiles, &profile.Profile{
		Name: "kind-dev", Key: "alice", Cluster: profile.Cluster{Server: "https://elsewhere", CertificateAuthorityData: string(h.ca)},
	}))
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 1, "profile kind-dev is for another server, https://elsewhere", "--profile")
	if h.text(t) != h.original {
		t.Error("the kubeconfig was changed")
	}
	check(t, os.WriteFile(h.profiles+"/kind-dev.yaml", []byte("nonsense: 1\n"), 0o600))
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 1, "kind-dev.yaml:1: a profile has no word", "correct or remove the profile")
}

// The layouts that cannot be edited are refused before anything is written.
func TestKubeconfigAddLayout(t *testing.T) {
	h := setUp(t)
	h.original = strings.Replace(h.original, "users:\n", "users: &u\n", 1)
	check(t, os.WriteFile(h.config, []byte(h.original), 0o640))
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 1, "layout", "hint: kubectl config view --raw --flatten")
	h.unchanged(t)
}

// With several files, the entries go where the context is, and where kubectl
// would see them.
func TestKubeconfigAddSeveralFiles(t *testing.T) {
	h := setUp(t)
	first := file(t, []byte("current-context: x\nusers:\n- {name: taken, user: {}}\ncontexts: []\nclusters: []\n"))
	t.Setenv("KUBECONFIG", first+":"+h.config)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice", "--name", "taken").want(t, 1, first+` has entries named "taken" already`)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice", "--use").want(t, 1, "the current context is set in "+first, "kubectl config use-context kind-dev-holdfast")
	h.unchanged(t)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 0, "kind-dev-holdfast, in "+h.config)
	h.run("kubeconfig", "remove", "kind-dev").want(t, 0)
	h.unchanged(t)
}

// A profile without its kubeconfig is taken back: the one that was there is there
// again.
func TestKubeconfigAddWritesBothOrNeither(t *testing.T) {
	h := setUp(t)
	// The lock's name is as long as a name can be, and that of the new file longer.
	long := filepath.Join(filepath.Dir(h.config), strings.Repeat("c", 250))
	check(t, os.Rename(h.config, long))
	h.config = long
	t.Setenv("KUBECONFIG", long)
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 1, "file name too long")
	h.unchanged(t)
	check(t, profile.Write(h.profiles, &profile.Profile{
		Name: "kind-dev", Key: "team", Cluster: profile.Cluster{Server: "https://10.0.0.1:6443", CertificateAuthorityData: string(h.ca)},
	}))
	h.run("kubeconfig", "add", "kind-dev", "--key", "alice").want(t, 1, "file name too long")
	if profiles, _, err := profile.Load(h.profiles); err != nil || profiles["kind-dev"] == nil || profiles["kind-dev"].Key != "team" {
		t.Errorf("got %v, %v, want the profile as it was", profiles, err)
	}
}
