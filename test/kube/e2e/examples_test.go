package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"holdfast/client/profile"
	"holdfast/test/daemon"
	"holdfast/test/kube"
)

// example reads a file of packaging/examples/kubernetes.
func example(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(examplePath(name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func examplePath(name string) string {
	return filepath.Join("..", "..", "..", "packaging", "examples", "kubernetes", name)
}

var placeholder = regexp.MustCompile(`(?s)    -----BEGIN CERTIFICATE-----.*-----END CERTIFICATE-----\n`)

// withExample gives the rig the profile NAME of the examples, made for its plane.
func withExample(t testing.TB, name string) setup {
	return func(r *rig, o *daemon.BrokerOptions) {
		authority := bytes.ReplaceAll(bytes.TrimSpace(r.plane.Authority.PEM), []byte("\n"), []byte("\n    "))
		text := placeholder.ReplaceAllLiteral(example(t, name+".profile.yaml"), append(append([]byte("    "), authority...), '\n'))
		text = regexp.MustCompile(`server: .*`).ReplaceAll(text, []byte("server: "+r.plane.URL))
		p, err := profile.Parse(profileName(name), text)
		if err != nil {
			t.Fatal(err)
		}
		p.Key = r.profile.Key
		r.profile = p
		o.Profiles = []*profile.Profile{p}
	}
}

// profileName is what a person's profile is called: after the cluster.
func profileName(name string) string {
	if name == "person" {
		return "prod"
	}
	return name
}

// exampleKubeconfig writes the kubeconfig NAME of the examples with the addresses
// and the authorities of this machine, and nothing else changed.
func (r *rig) exampleKubeconfig(t testing.TB, name string) string {
	t.Helper()
	config, err := clientcmd.Load(example(t, name+".kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	endpoint := r.broker.GetStatus().Endpoint
	for _, c := range config.Clusters {
		if strings.HasPrefix(c.CertificateAuthority, "holdfast-broker") {
			c.Server, c.CertificateAuthorityData = "https://"+endpoint.Address, []byte(endpoint.Certificate)
		} else {
			c.Server, c.CertificateAuthorityData = r.plane.URL, r.plane.Authority.PEM
		}
		c.CertificateAuthority = ""
	}
	return r.write(t, config)
}

// A person's kubectl.
func TestExamplePerson(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice, withExample(t, "person"))
	got := must(t, r.kubectl(r.exampleKubeconfig(t, "person"), "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"))
	if got != alice.Name {
		t.Errorf("whoami: %s", got)
	}
}

// A controller with informers, a program of its own.
func TestExampleController(t *testing.T) {
	plane := sharedPlane(t)
	serviceAccount(t, plane, "default", "controller", "view")
	r := newRig(t, plane, alice, withExample(t, "controller"))
	program := filepath.Join(t.TempDir(), "controller")
	if out, err := exec.Command("go", "build", "-trimpath", "-o", program, examplePath("controller.go")).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.Command(program, "-namespace", "default")
	cmd.Env = append(append([]string(nil), r.environ...), "KUBECONFIG="+r.exampleKubeconfig(t, "controller"))
	controller := background(t, "controller", cmd)
	controller.Await(t, "in step", "\n")
	maps := plane.Client().CoreV1().ConfigMaps("default")
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "followed"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controller.Await(t, "added followed", "\n")
	if err := maps.Delete(t.Context(), "followed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controller.Await(t, "deleted followed", "\n")
}

// kube-controller-manager as kubeadm starts it: each controller has a service
// account of its own.
func TestExampleControllerManager(t *testing.T) {
	plane := sharedPlane(t)
	serviceAccount(t, plane, "kube-system", "kube-controller-manager", "system:kube-controller-manager")
	r := newRig(t, plane, alice, withExample(t, "kube-controller-manager"))
	checkManager(t, r, r.exampleKubeconfig(t, "kube-controller-manager"), "--use-service-account-credentials=true")
}

// serviceAccount makes a service account with a cluster role.
func serviceAccount(t testing.TB, p *kube.Plane, namespace, name, role string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := p.Client().CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.BindUser("system:serviceaccount:"+namespace+":"+name, role); err != nil {
		t.Fatal(err)
	}
}
