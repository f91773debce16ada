package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"holdfast/client/profile"
	"holdfast/test/daemon"
)

// A port of its own is for clients that do not send the name.
func TestDedicatedPort(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice, func(r *rig, _ *daemon.BrokerOptions) { r.profile.Proxy.Port = freePort(t) })
	config := r.config(t, profile.ModeProxy)
	status := r.broker.GetStatus()
	cluster := config.Clusters["test"]
	cluster.Server, cluster.TLSServerName = "https://"+status.Profiles[0].Address, ""
	if cluster.Server == "https://"+status.Endpoint.Address {
		t.Fatalf("the profile has no port of its own: %s", cluster.Server)
	}
	if got := must(t, r.kubectl(r.write(t, config), "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")); got != alice.Name {
		t.Errorf("whoami: %s", got)
	}
}

// kubectl's list of the plugins that may be run (kuberc) names ours by its path.
func TestAllowlist(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice)
	kubeconfig := r.kubeconfig(t, profile.ModeProxy)
	head := "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\n"
	for _, c := range []struct {
		policy string
		code   int
		says   string
	}{
		{"credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist:\n- command: " + daemon.Program(t, daemon.PluginProgram) + "\n", 0, ""},
		{"credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist:\n- command: holdfast-exec-plugin\n", 0, ""},
		{"credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist:\n- command: /usr/bin/other\n", 1, "not permitted by the credential plugin allowlist"},
		{"credentialPluginPolicy: DenyAll\n", 1, "not allowed"},
	} {
		kuberc := filepath.Join(t.TempDir(), "kuberc")
		if err := os.WriteFile(kuberc, []byte(head+c.policy), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := r.kubectl(kubeconfig, "auth", "whoami")
		cmd.Env = append(cmd.Env, "KUBERC="+kuberc)
		if o := run(cmd); o.code != c.code || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%s: %+v", c.policy, o)
		}
	}
}

// pluginFaults is what client-go says of a plugin that does not keep to the
// protocol, or that it cannot run.
var pluginFaults = []string{
	"decoding stdout", "plugin returned version", "didn't return a status field", "didn't return a token or cert/key pair",
	"returned only certificate or key", "failed parsing client", "fork/exec", "not found", "couldn't get version/kind", "panic",
}

// Whatever goes wrong, what client-go says of it is the plugin's exit code, after
// one fact and one hint of the plugin's own.
func TestFaultsReachThePerson(t *testing.T) {
	cases := []struct {
		name  string
		mode  string
		spoil func(t *testing.T, r *rig, c *clientcmdapi.Config)
		code  string
	}{
		{"no broker", profile.ModeToken, func(_ *testing.T, r *rig, _ *clientcmdapi.Config) { r.broker.Kill() }, "3"},
		{"no agent", profile.ModeToken, func(_ *testing.T, r *rig, _ *clientcmdapi.Config) { r.agent.Kill() }, "3"},
		{"a stuck broker", profile.ModeProxy, func(_ *testing.T, r *rig, _ *clientcmdapi.Config) { r.broker.Signal(syscall.SIGSTOP) }, "3"},
		{"a stuck agent", profile.ModeToken, func(_ *testing.T, r *rig, _ *clientcmdapi.Config) { r.agent.Signal(syscall.SIGSTOP) }, "3"},
		{"no profile", profile.ModeProxy, func(_ *testing.T, _ *rig, c *clientcmdapi.Config) { stanza(c).Args[1] = "none" }, "4"},
		{"no such mode", profile.ModeProxy, func(_ *testing.T, _ *rig, c *clientcmdapi.Config) { stanza(c).Args[3] = "magic" }, "2"},
		{"another cluster", profile.ModeToken, func(_ *testing.T, _ *rig, c *clientcmdapi.Config) { c.Clusters["test"].Server = "https://localhost:1" }, "4"},
		{"a service account that is not there", profile.ModeToken, func(_ *testing.T, r *rig, _ *clientcmdapi.Config) {
			r.profile.Token.ServiceAccount = "nobody"
			r.broker.WriteProfile(r.profile)
		}, "1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // the stuck ones wait
			r := newRig(t, sharedPlane(t), alice)
			for _, version := range []string{"v1", "v1beta1"} {
				config := r.config(t, c.mode)
				stanza(config).APIVersion = "client.authentication.k8s.io/" + version
				c.spoil(t, r, config)
				checkFault(t, run(r.kubectl(r.write(t, config), "get", "--raw", "/version")), c.code)
				if c.code == "3" {
					break // a broker that is gone cannot be asked for its address again
				}
			}
		})
	}
}

func stanza(c *clientcmdapi.Config) *clientcmdapi.ExecConfig { return c.AuthInfos["test"].Exec }

func checkFault(t *testing.T, o outcome, code string) {
	t.Helper()
	if o.code == 0 || o.stdout != "" || !strings.Contains(o.stderr, "executable holdfast-exec-plugin failed with exit code "+code) {
		t.Errorf("kubectl: %+v, want exit code %s of the plugin", o, code)
	}
	var ours, theirs []string
	for line := range strings.Lines(o.stderr) {
		switch {
		case strings.HasPrefix(line, "holdfast: waiting: "):
		case strings.HasPrefix(line, "holdfast: "):
			ours = append(ours, line)
		default:
			theirs = append(theirs, line)
		}
	}
	if len(ours) != 1 || !strings.HasPrefix(ours[0], "holdfast: error: ") || !strings.Contains(ours[0], "; hint: ") {
		t.Errorf("the plugin says %q, want one fact and one hint", ours)
	}
	for _, fault := range pluginFaults {
		if strings.Contains(strings.Join(theirs, ""), fault) {
			t.Errorf("client-go says %q: %s", fault, theirs)
		}
	}
}
