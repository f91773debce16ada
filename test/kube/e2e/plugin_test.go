package e2e

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/test/daemon"
)

// info is KUBERNETES_EXEC_INFO as client-go makes it.
type info struct {
	Kind       string   `json:"kind"`
	APIVersion string   `json:"apiVersion"`
	Spec       infoSpec `json:"spec"`
}

type infoSpec struct {
	Interactive bool         `json:"interactive"`
	Cluster     *infoCluster `json:"cluster,omitempty"`
}

type infoCluster struct {
	Server                   string `json:"server"`
	TLSServerName            string `json:"tls-server-name,omitempty"`
	InsecureSkipTLSVerify    bool   `json:"insecure-skip-tls-verify,omitempty"`
	CertificateAuthorityData []byte `json:"certificate-authority-data,omitempty"`
	ProxyURL                 string `json:"proxy-url,omitempty"`
}

// credential is the status of what the plugin prints.
type credential struct {
	ExpirationTimestamp   time.Time `json:"expirationTimestamp"`
	Token                 string    `json:"token"`
	ClientCertificateData string    `json:"clientCertificateData"`
	ClientKeyData         string    `json:"clientKeyData"`
}

// cluster is what client-go says of the plane when the kubeconfig is honest.
func (r *rig) cluster() *infoCluster {
	return &infoCluster{Server: r.plane.URL, CertificateAuthorityData: r.plane.Authority.PEM}
}

// plugin prepares a run of the plugin by this process.
func (r *rig) plugin(t testing.TB, profile, mode string, cluster *infoCluster) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(info{Kind: "ExecCredential", APIVersion: "client.authentication.k8s.io/v1", Spec: infoSpec{Cluster: cluster}})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(daemon.Program(t, daemon.PluginProgram), "--profile", profile, "--mode", mode)
	cmd.Env = append(slices.Clone(r.environ), "KUBERNETES_EXEC_INFO="+string(text))
	return cmd
}

// credential runs the plugin, which has to succeed.
func (r *rig) credential(t testing.TB, profile, mode string) credential {
	t.Helper()
	return parse(t, must(t, r.plugin(t, profile, mode, r.cluster())))
}

// parse reads what the plugin printed: one object, and a credential that is valid
// for a while.
func parse(t testing.TB, stdout string) credential {
	t.Helper()
	var answer struct {
		Kind, APIVersion string
		Status           credential
	}
	d := json.NewDecoder(strings.NewReader(stdout))
	if err := d.Decode(&answer); err != nil || d.More() {
		t.Fatalf("the plugin printed %q: %v", stdout, err)
	}
	if answer.Kind != "ExecCredential" || answer.APIVersion != "client.authentication.k8s.io/v1" {
		t.Fatalf("the plugin printed a %s of %s", answer.Kind, answer.APIVersion)
	}
	if left := time.Until(answer.Status.ExpirationTimestamp); left <= 0 {
		t.Fatalf("the plugin's answer ended %v ago", -left)
	}
	return answer.Status
}
