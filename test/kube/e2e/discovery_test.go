package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/test/daemon"
	"holdfast/test/kube"
)

// defineWidgets gives a plane the resource widgets in one version.
func defineWidgets(t *testing.T, plane *kube.Plane, version string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "crd.yaml")
	text := fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.holdfast.example}
spec:
  group: holdfast.example
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: %s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
`, version)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"apply", "-f", path},
		{"wait", "--for=condition=Established", "--timeout=60s", "crd/widgets.holdfast.example"},
	} {
		if out, err := plane.Administer(command...); err != nil {
			t.Fatalf("kubectl %v: %v\n%s", command, err, out)
		}
	}
}

// Two clusters whose resources differ, behind one broker and one kubectl, whose
// discovery cache goes by the server's host and port: none is taken for the other.
func TestDiscoveryOfTwoClusters(t *testing.T) {
	prod, stage := sharedPlane(t), kube.Start(t, kube.Options{})
	if err := stage.BindUser(alice.Name, "cluster-admin"); err != nil {
		t.Fatal(err)
	}
	defineWidgets(t, prod, "v1")
	defineWidgets(t, stage, "v1beta1")
	r := newRig(t, prod, alice, func(r *rig, o *daemon.BrokerOptions) {
		r.plane = stage
		r.enrol(t, "stage", alice, time.Time{})
		o.Profiles = append(o.Profiles, r.newProfile("stage"))
		r.plane = prod
	})
	config := r.config(t, profile.ModeProxy)
	for _, p := range r.broker.GetStatus().Profiles {
		addProfile(r, config, p)
	}
	path := filepath.Join(r.dir, "two.kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for context, version := range map[string]string{"prod": "v1", "stage": "v1beta1"} {
			got := run(r.kubectl(path, "--context", context, "get", "widgets"))
			if got.code != 0 {
				t.Errorf("%s: get widgets: %+v", context, got)
			}
			got = run(r.kubectl(path, "--context", context, "api-resources", "--api-group=holdfast.example", "--no-headers", "--cached"))
			if !strings.Contains(got.stdout, "holdfast.example/"+version+" ") {
				t.Errorf("%s: want %s, got %+v", context, version, got)
			}
		}
	}
}

// addProfile adds a context for a profile, as `holdfast kubeconfig add` writes it.
func addProfile(r *rig, config *clientcmdapi.Config, p brokerwire.Profile) {
	config.Clusters[p.Name] = &clientcmdapi.Cluster{
		Server: "https://" + p.Address, TLSServerName: p.TLSServerName, CertificateAuthorityData: []byte(p.Certificate),
	}
	exec := r.exec(profile.ModeProxy)
	exec.Args[1] = p.Name
	config.AuthInfos[p.Name] = &clientcmdapi.AuthInfo{Exec: exec}
	config.Contexts[p.Name] = &clientcmdapi.Context{Cluster: p.Name, AuthInfo: p.Name}
}
