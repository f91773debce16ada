// Package e2e runs stock Kubernetes clients against a real control plane, with a
// key that is in a TPM (swtpm): real agent, real broker, real plugin. Start at
// [rig].
package e2e

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/client"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/test/daemon"
	"holdfast/test/kube"
	"holdfast/test/swtpm"
)

// testTimeout bounds what a test waits for. Everything here takes a second or two
// on an idle machine.
const testTimeout = 60 * time.Second

// The plane that most tests share, and the node and the pod on it. Tests that
// stop a process of the plane start their own.
var shared = sync.OnceValues(func() (*kube.Plane, error) {
	p, err := kube.New(kube.Options{Controllers: true})
	if err != nil {
		return nil, err
	}
	started.Store(p)
	return p, prepare(p)
})

// started is the shared plane, once there is one.
var started atomic.Pointer[kube.Plane]

// prepare gives rights to those who appear in the tests.
func prepare(p *kube.Plane) error {
	for _, user := range []string{alice.Name, node.Name} {
		if err := p.BindUser(user, "cluster-admin"); err != nil {
			return err
		}
	}
	return p.ApproveNodes()
}

// Those who sign in. The node may do everything too, so that what holds for
// people can be tested with certificates that a stock cluster renews.
var (
	alice = kube.User{Name: "alice", Groups: []string{"dev"}}
	node  = kube.User{Name: "system:node:worker-1", Groups: []string{"system:nodes"}}
)

func TestMain(m *testing.M) {
	if program := os.Getenv(actAs); program != "" {
		os.Exit(programs[program]())
	}
	status := m.Run()
	if p := started.Load(); p != nil {
		if status != 0 {
			fmt.Fprintln(os.Stderr, p.Logs())
		}
		p.Close()
	}
	daemon.Remove()
	os.Exit(status)
}

func sharedPlane(t testing.TB) *kube.Plane {
	t.Helper()
	p, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A rig is one machine: a TPM behind a counter, an agent, a key with the
// certificate of a user of the plane, and a broker with one profile, prod.
type rig struct {
	plane   *kube.Plane
	tpm     *swtpm.Proxy
	agent   *daemon.Agent
	broker  *daemon.Broker
	profile *profile.Profile
	dir     string   // where the rig's own files are; other uids may look
	environ []string // of what the rig starts
}

// setup changes a rig before its broker starts.
type setup func(*rig, *daemon.BrokerOptions)

// newRig starts a rig on a plane, for a user.
func newRig(t testing.TB, plane *kube.Plane, user kube.User, more ...setup) *rig {
	t.Helper()
	return newRigWith(t, plane, user, daemon.Options{}, more...)
}

// newRigWith is newRig with an agent that is started in another way.
func newRigWith(t testing.TB, plane *kube.Plane, user kube.User, agent daemon.Options, more ...setup) *rig {
	t.Helper()
	r := &rig{plane: plane, tpm: swtpm.NewProxy(t, swtpm.Start(t), swtpm.Options{}), dir: daemon.Dir(t)}
	if err := os.Chmod(r.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	agent.Device = r.tpm.Device()
	r.agent = daemon.Start(t, agent)
	r.enrol(t, "prod", user, time.Time{})
	r.profile = r.newProfile("prod")
	o := daemon.BrokerOptions{Agent: r.agent, Profiles: []*profile.Profile{r.profile}}
	for _, change := range more {
		change(r, &o)
	}
	r.broker = daemon.StartBroker(t, o)
	r.environ = []string{
		"PATH=" + programPath(t), "HOME=" + filepath.Join(r.dir, "home"),
		"HOLDFAST_BROKER_SOCKET=" + r.broker.Socket, "HOLDFAST_SOCKET=" + r.agent.Socket,
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("-- agent:\n%s\n-- broker:\n%s", r.agent.Log(), r.broker.Log())
		}
	})
	return r
}

// newProfile is a profile of the plane that allows every mode.
func (r *rig) newProfile(name string) *profile.Profile {
	return &profile.Profile{
		Name: name, Key: name,
		Modes:   []string{profile.ModeProxy, profile.ModeCertificate, profile.ModeToken},
		Cluster: profile.Cluster{Server: r.plane.URL, CertificateAuthorityData: string(r.plane.Authority.PEM)},
		Token:   profile.Token{Namespace: "default", ServiceAccount: "default"},
	}
}

// withNode gives the rig a second key, a node's, and its profile, node.
func withNode(t testing.TB) setup {
	return func(r *rig, o *daemon.BrokerOptions) {
		r.enrol(t, "node", node, time.Time{})
		o.Profiles = append(o.Profiles, r.newProfile("node"))
	}
}

// enrol makes a key in the TPM and gives it a client certificate.
func (r *rig) enrol(t testing.TB, key string, user kube.User, notAfter time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	c, err := client.Dial(ctx, &client.Options{Socket: r.agent.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.CreateKey(ctx, agentwire.CreateKeyParameters{Name: key, Purpose: "tls-client"}); err != nil {
		t.Fatalf("create the key %s: %v", key, err)
	}
	r.install(t, key, user, notAfter)
}

// install gives a key a certificate of the plane's authority.
func (r *rig) install(t testing.TB, key string, user kube.User, notAfter time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	c, err := client.Dial(ctx, &client.Options{Socket: r.agent.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	k, err := c.Key(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := k.CertificateRequest(&x509.CertificateRequest{Subject: pkix.Name{CommonName: user.Name, Organization: user.Groups}})
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := r.plane.Authority.Client(user, request.PublicKey, notAfter)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.InstallCertificate(ctx, key, decode(chain)); err != nil {
		t.Fatalf("install the certificate of %s: %v", key, err)
	}
}

// signatures is how often the device has signed so far.
func (r *rig) signatures() int { return r.tpm.Counts()[tpm2.TPMCCSign] }

// programPath is a PATH on which the plugin is found.
func programPath(t testing.TB) string {
	return filepath.Dir(daemon.Program(t, daemon.PluginProgram)) + ":" + os.Getenv("PATH")
}
