package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"holdfast/client/profile"
)

// exec is the stanza by which a kubeconfig's user runs the plugin.
func (r *rig) exec(mode string) *clientcmdapi.ExecConfig {
	return &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "holdfast-exec-plugin",
		Args: []string{"--profile", r.profile.Name, "--mode", mode}, ProvideClusterInfo: mode != profile.ModeProxy,
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}
}

// config is a kubeconfig for the rig's profile in a mode.
func (r *rig) config(t testing.TB, mode string) *clientcmdapi.Config {
	t.Helper()
	c := clientcmdapi.NewConfig()
	cluster := &clientcmdapi.Cluster{Server: r.plane.URL, CertificateAuthorityData: r.plane.Authority.PEM}
	if mode == profile.ModeProxy {
		endpoint := r.broker.GetStatus().Endpoint
		cluster = &clientcmdapi.Cluster{
			Server: "https://" + endpoint.Address, TLSServerName: r.profile.ServerName(),
			CertificateAuthorityData: []byte(endpoint.Certificate),
		}
	}
	c.Clusters["test"] = cluster
	c.AuthInfos["test"] = &clientcmdapi.AuthInfo{Exec: r.exec(mode)}
	c.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	c.CurrentContext = "test"
	return c
}

var files atomic.Int64

// write writes a kubeconfig that every user may read, and returns its path.
func (r *rig) write(t testing.TB, c *clientcmdapi.Config) string {
	t.Helper()
	path := filepath.Join(r.dir, fmt.Sprintf("kubeconfig-%d", files.Add(1)))
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// kubeconfig writes the kubeconfig for a mode.
func (r *rig) kubeconfig(t testing.TB, mode string) string {
	t.Helper()
	return r.write(t, r.config(t, mode))
}

// kubectl prepares stock kubectl.
func (r *rig) kubectl(kubeconfig string, args ...string) *exec.Cmd {
	cmd := r.plane.Kubectl(kubeconfig, args...)
	cmd.Env = append(cmd.Env, r.environ...)
	return cmd
}
