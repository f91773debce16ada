package main

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/client/clienttest"
	"holdfast/client/enroll"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
	"holdfast/test/apiserver"
)

// cluster is a stand-in for a cluster, and a user who may enroll there.
type cluster struct {
	*apiserver.Server
	command
	agent      *clienttest.Agent
	kubeconfig string
	ca, token  string // files
}

const bootstrap = "abcdef.0123456789abcdef"

// withCluster starts a cluster that knows carol of the group dev by a token in a
// kubeconfig, and a bootstrap token; and an agent without keys.
func withCluster(t *testing.T) *cluster {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	c := &cluster{Server: apiserver.Start(t), agent: clienttest.Start(t)}
	c.AddToken("hush-carol", apiserver.User{Username: "carol", Groups: []string{"dev", "system:authenticated"}})
	c.AddToken(bootstrap, apiserver.User{Username: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers"}})
	c.command = command{socket: c.agent.Socket}
	c.ca, c.token = file(t, c.CA), file(t, []byte(bootstrap+"\n"))
	c.kubeconfig = c.contexts(t, "token: hush-carol")
	return c
}

// contexts writes a kubeconfig whose one context, admin, has a user of the words
// given.
func (c *cluster) contexts(t *testing.T, user string) string {
	t.Helper()
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: admin
clusters:
- name: c
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: u
  user:
    %s
contexts:
- name: admin
  context: {cluster: c, user: u}
`, c.URL, base64.StdEncoding.EncodeToString(c.CA), strings.ReplaceAll(user, "\n", "\n    "))
	return file(t, []byte(text))
}

func (c *cluster) profile(t *testing.T, name string) *profile.Profile {
	t.Helper()
	all, faults, err := profile.Load(profile.Directory(false))
	if err != nil || len(faults) > 0 || all[name] == nil {
		t.Fatalf("profile %s: got %v, %v, %v", name, all, faults, err)
	}
	return all[name]
}

// leafOf returns the certificate of a key of the stand-in agent.
func leafOf(t *testing.T, c command, key string) *x509.Certificate {
	t.Helper()
	var k agentwire.Key
	check(t, json.Unmarshal([]byte(c.run("key", "show", key, "--json").stdout), &k))
	if len(k.Chain) == 0 {
		t.Fatalf("key %s has no certificate", key)
	}
	leaf, err := x509.ParseCertificate(k.Chain[0])
	check(t, err)
	return leaf
}

func TestEnrollFromContext(t *testing.T) {
	c := withCluster(t)
	before, err := os.ReadFile(c.kubeconfig)
	check(t, err)
	got := c.run("enroll", "kubernetes", "prod", "--key", "alice", "--create", "--kubeconfig", c.kubeconfig, "--lifetime", "20m")
	got.want(t, 0, "signed in as  carol (groups dev)", "renewal")
	for _, text := range []string{"kubectl certificate approve holdfast-prod-", enroll.PeopleSigner, "holdfast kubeconfig add admin --key alice --profile prod"} {
		if !strings.Contains(got.stderr, text) {
			t.Errorf("stderr does not say %q: %s", text, got.stderr)
		}
	}
	leaf := leafOf(t, c.command, "alice")
	if leaf.Subject.CommonName != "carol" || !slices.Equal(leaf.Subject.Organization, []string{"dev"}) {
		t.Errorf("got a certificate for %s", leaf.Subject)
	}
	signer, usages, lifetime := c.Asked(c.RequestNames()[0])
	if signer != enroll.PeopleSigner || lifetime != 20*time.Minute || len(usages) != 2 {
		t.Errorf("asked for %s, %q, %s", signer, usages, lifetime)
	}
	p := c.profile(t, "prod")
	cluster := profile.Cluster{Server: c.URL, CertificateAuthorityData: string(c.CA)}
	if p.Key != "alice" || !slices.Equal(p.Modes, []string{"proxy"}) || p.Cluster != cluster {
		t.Errorf("got %+v", p)
	}
	if want := (profile.Renewal{SignerName: enroll.PeopleSigner, Lifetime: 20 * time.Minute, Fraction: profile.DefaultFraction, Jitter: enroll.DefaultJitter}); p.Renewal != want {
		t.Errorf("got %+v, want %+v", p.Renewal, want)
	}
	if last := c.Requests()[len(c.Requests())-1]; last != "POST /apis/authentication.k8s.io/v1/selfsubjectreviews by carol" {
		t.Errorf("the last request was %s", last)
	}
	if after, _ := os.ReadFile(c.kubeconfig); string(after) != string(before) {
		t.Error("the kubeconfig was written to")
	}
	c.run("certificate", "show", "alice").want(t, 0, "renewal", "profile prod")
}

// A bootstrap token signs in without a kubeconfig, and is never shown.
func TestEnrollNodeByToken(t *testing.T) {
	c := withCluster(t)
	t.Setenv("KUBECONFIG", "/nowhere")
	args := []string{"enroll", "kubernetes", "node", "--key", "node", "--create", "--node", "w1", "--server", c.URL, "--ca", c.ca, "--no-jitter", "--json", "--token-file"}
	got := c.run(append(args, c.token)...)
	got.want(t, 0, `"user": "system:node:w1"`, `"system:nodes"`)
	if strings.Contains(got.stdout+got.stderr, bootstrap) {
		t.Error("the token is shown")
	}
	if p := c.profile(t, "node"); p.Renewal.SignerName != enroll.NodeSigner || p.Renewal.Jitter != 0 || p.Renewal.Lifetime != 0 {
		t.Errorf("got %+v", p.Renewal)
	}
	// Once more, by the profile's cluster and key, with the token on stdin.
	again := command{socket: c.socket, stdin: bootstrap}
	again.run("enroll", "kubernetes", "node", "--node", "w1", "--token-file", "-").want(t, 0, "signed in as  system:node:w1")
	if n := len(c.RequestNames()); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// A key that is there is used, with the options of the profile that are there.
func TestEnrollKeepsTheProfile(t *testing.T) {
	c := withCluster(t)
	c.agent.AddKey("alice", keys.TLSClient, keys.RS256)
	p := &profile.Profile{
		Name: "prod", Key: "alice", Modes: []string{"proxy", "token"}, Cluster: profile.Cluster{Server: c.URL, CertificateAuthorityData: string(c.CA)},
		Token: profile.Token{Namespace: "ci", ServiceAccount: "x"}, Renewal: profile.Renewal{SignerName: "example.com/old", Fraction: 0.5},
	}
	check(t, profile.Write(profile.Directory(false), p))
	c.run("enroll", "kubernetes", "prod", "--kubeconfig", c.kubeconfig, "--subject", "CN=alice,O=ops").want(t, 0, "signed in as  alice (groups ops)")
	got := c.profile(t, "prod")
	if got.Token.Namespace != "ci" || got.Renewal.Fraction != 0.5 || got.Renewal.Jitter != 0 || got.Renewal.SignerName != enroll.PeopleSigner {
		t.Errorf("got %+v", got)
	}
	c.run("enroll", "kubernetes", "prod", "--key", "bob", "--kubeconfig", c.kubeconfig).want(t, 2, "is for key alice, not for bob")
}

// A user who signs in through an exec plugin does so once, and gets a hardware key.
func TestEnrollByPlugin(t *testing.T) {
	c := withCluster(t)
	script := filepath.Join(t.TempDir(), "login")
	check(t, os.WriteFile(script, []byte("#!/bin/sh\necho 'open https://idp.example' >&2\n"+
		`case "$KUBERNETES_EXEC_INFO" in *'"config":{"audience":"abc"}'*) ;; *) exit 9;; esac
[ "$WHO" = carol ] || exit 8
echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"hush-'$WHO'"}}'
`), 0o700))
	config, err := os.ReadFile(c.contexts(t, "exec:\n  apiVersion: client.authentication.k8s.io/v1\n  command: "+script+
		"\n  interactiveMode: IfAvailable\n  provideClusterInfo: true\n  env:\n  - {name: WHO, value: carol}"))
	check(t, err)
	text := strings.Replace(string(config), "    certificate-authority-data",
		"    extensions:\n    - name: client.authentication.k8s.io/exec\n      extension: {audience: abc}\n    certificate-authority-data", 1)
	got := c.run("enroll", "kubernetes", "prod", "--key", "alice", "--create", "--kubeconfig", file(t, []byte(text)))
	got.want(t, 0, "signed in as  carol")
	if !strings.Contains(got.stderr, "open https://idp.example") || strings.Contains(got.stdout+got.stderr, "hush") {
		t.Errorf("got %q", got.stderr)
	}
	c.run("enroll", "kubernetes", "dev", "--key", "bob", "--create", "--kubeconfig",
		c.contexts(t, "exec:\n  apiVersion: client.authentication.k8s.io/v1\n  command: hold-not-there\n  installHint: brew install it\n  interactiveMode: Never")).
		want(t, 1, "hold-not-there is not installed", "hint: brew install it")
}

func TestEnrollRefusals(t *testing.T) {
	tests := map[string]struct {
		args string
		user string // of the kubeconfig
		code int
		want string
	}{
		"no key":            {"", "", 2, "--key is missing"},
		"no such key":       {"--key alice", "", 4, "--create makes one"},
		"no context":        {"--key alice --context x", "", 2, `no context "x"`},
		"two ways":          {"--key alice --context x --token-file -", "", 2, "two ways to sign in"},
		"a server alone":    {"--key alice --server https://x --token-file -", "", 2, "go together"},
		"no token":          {"--key alice --server https://x --ca x", "", 2, "needs --token-file"},
		"a short lifetime":  {"--key alice --lifetime 599s", "", 2, "cannot be asked for"},
		"two subjects":      {"--key alice --subject CN=a --node a", "", 2, "exclude each other"},
		"how, but not to":   {"--key alice --algorithm ES384", "", 2, "add --create"},
		"a bad subject":     {"--key alice --subject a", "", 2, "has no ="},
		"a bad key":         {"--key A", "", 2, "is not a key name"},
		"who is not known":  {"--key alice --create", "token: hush-mallory", 1, "has the token or the certificate that signs in expired"},
		"masters":           {"--key alice --create --subject CN=a,O=system:masters", "", 1, "names another group"},
		"holdfast itself":   {"--key alice --create", "exec: {apiVersion: client.authentication.k8s.io/v1, command: holdfast-exec-plugin, interactiveMode: Never}", 1, "by holdfast itself"},
		"nobody":            {"--key alice --create", "{}", 1, "has no credentials"},
		"for somebody else": {"--key alice --create", "as: root\ntoken: hush-carol", 1, "impersonates another user"},
		"an auth-provider":  {"--key alice --create", "auth-provider: {name: gcp}", 1, "no longer has"},
		"another signer":    {"--key alice --create --signer-name x", "", 1, "is not a signer's name"},
	}
	for name, test := range tests {
		c := withCluster(t)
		if test.user == "" {
			test.user = "token: hush-carol"
		}
		t.Setenv("KUBECONFIG", c.contexts(t, test.user))
		got := c.run(append([]string{"enroll", "kubernetes", "prod"}, strings.Fields(test.args)...)...)
		if got.code != test.code || !strings.Contains(got.stderr, test.want) || strings.Contains(got.stderr, "hush") {
			t.Errorf("%s: got %d, %s", name, got.code, got.stderr)
		}
		if all, _, _ := profile.Load(profile.Directory(false)); len(all) != 0 {
			t.Errorf("%s: a profile was written", name)
		}
	}
}

// A credential for one cluster is not sent to another.
func TestEnrollAnotherCluster(t *testing.T) {
	c := withCluster(t)
	other := apiserver.Start(t)
	p := &profile.Profile{Name: "prod", Key: "alice", Cluster: profile.Cluster{Server: other.URL, CertificateAuthorityData: string(other.CA)}}
	check(t, profile.Write(profile.Directory(false), p))
	c.run("enroll", "kubernetes", "prod", "--kubeconfig", c.kubeconfig).want(t, 2, "is for "+other.URL+", not for "+c.URL)
	if n := len(other.Requests()) + len(c.Requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestEnrollDecisions(t *testing.T) {
	tests := map[string]struct {
		conduct apiserver.Conduct
		want    []string
	}{
		"denied":          {apiserver.Conduct{Decision: apiserver.Deny, Message: "not you"}, []string{"was denied: not you", "kubectl describe csr holdfast-prod-"}},
		"failed":          {apiserver.Conduct{Decision: apiserver.Fail, Message: "no CA"}, []string{"failed: no CA"}},
		"nobody approves": {apiserver.Conduct{Decision: apiserver.Hold}, []string{"is not approved yet", "kubectl certificate approve holdfast-prod-"}},
		"nobody signs":    {apiserver.Conduct{Decision: apiserver.Approve}, []string{"no signer has issued", "kube-controller-manager"}},
		"clocks":          {apiserver.Conduct{Skew: 2 * time.Hour}, []string{"is valid from", "timedatectl"}},
	}
	for name, test := range tests {
		c := withCluster(t)
		c.Change(func(to *apiserver.Conduct) { *to = test.conduct })
		got := c.run("enroll", "kubernetes", "prod", "--key", "alice", "--create", "--kubeconfig", c.kubeconfig, "--timeout", "1s")
		got.want(t, 1, test.want...)
		if n := len(c.agent.Calls(agentwire.InstallCertificate)); n != 0 {
			t.Errorf("%s: a certificate was installed", name)
		}
	}
}

// A certificate that the API server does not take is not installed.
func TestEnrollTriesItOut(t *testing.T) {
	c := withCluster(t)
	c.run("enroll", "kubernetes", "prod", "--key", "alice", "--create", "--kubeconfig", c.kubeconfig).want(t, 0)
	before := leafOf(t, c.command, "alice")
	c.Change(func(to *apiserver.Conduct) { to.Revoked = true })
	c.run("enroll", "kubernetes", "prod", "--kubeconfig", c.kubeconfig).want(t, 1, "does not take the certificate", "keeps the certificate that it had")
	if after := leafOf(t, c.command, "alice"); !after.Equal(before) {
		t.Error("it was installed all the same")
	}
}
