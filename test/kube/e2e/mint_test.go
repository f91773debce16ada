package e2e

import (
	"context"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"holdfast/client/profile"
	"holdfast/test/daemon"
	"holdfast/test/kube"
	"holdfast/test/pace"
)

// requests counts the certificate requests that a user has made.
func requests(p *kube.Plane, user kube.User) int {
	return len(p.CertificateRequests(context.Background(), user.Name))
}

// worker is a node that no other test is. It has the rights of a node alone.
func worker(name string) kube.User {
	return kube.User{Name: "system:node:" + name, Groups: []string{"system:nodes"}}
}

// Mode token: kubectl is the profile's service account.
func TestToken(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice)
	kubeconfig := r.kubeconfig(t, profile.ModeToken)
	before := r.signatures()
	for name, program := range kubectls(r) {
		for range 3 {
			cmd := r.plane.KubectlOf(program, kubeconfig, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
			cmd.Env = append(cmd.Env, r.environ...)
			if got, want := must(t, cmd), "system:serviceaccount:default:default"; got != want {
				t.Errorf("kubectl %s: whoami: %s, want %s", name, got, want)
			}
		}
	}
	if got := r.signatures() - before; got != 1 {
		t.Errorf("kubectl runs in a row cost %d signatures, want 1", got)
	}
	c := r.credential(t, "prod", profile.ModeToken)
	if left := time.Until(c.ExpirationTimestamp); left > 10*time.Minute-30*time.Second || left < 8*time.Minute {
		t.Errorf("a token of 10 minutes is to be used for %v", left)
	}
	if c.ClientKeyData != "" || c.ClientCertificateData != "" {
		t.Error("a token came with a certificate")
	}
}

// Mode certificate: a node's certificate has an approver in a stock cluster.
func TestCertificateOfNode(t *testing.T) {
	plane := sharedPlane(t)
	user := worker("minting")
	r := newRig(t, plane, user)
	kubeconfig := r.kubeconfig(t, profile.ModeCertificate)
	got := must(t, r.kubectl(kubeconfig, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}"))
	if want := user.Name + ` ["system:nodes","system:authenticated"]`; got != want {
		t.Errorf("whoami: %s, want %s", got, want)
	}
	first := r.credential(t, "prod", profile.ModeCertificate)
	if left := time.Until(first.ExpirationTimestamp); left < 23*time.Hour {
		t.Errorf("a node's certificate is to be used for %v, want about a day", left)
	}
	t.Run("twenty runs of one shell make one mint", func(t *testing.T) {
		plugin := r.plugin(t, "prod", profile.ModeCertificate, r.cluster())
		shell := exec.Command("sh", append([]string{"-c", `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do "$@" || exit; done`, "sh"}, plugin.Args...)...)
		shell.Env = plugin.Env
		lines := strings.Split(strings.TrimSpace(must(t, shell)), "\n")
		if len(lines) != 20 {
			t.Fatalf("%d answers", len(lines))
		}
		for _, line := range lines {
			if got := parse(t, line); got != first {
				t.Fatal("the answers differ")
			}
		}
	})
	if got := requests(plane, user); got != 1 {
		t.Errorf("%d certificate requests were made, want 1", got)
	}
}

// A hundred at once share one mint.
func TestMintOnce(t *testing.T) {
	plane := sharedPlane(t)
	user := worker("minting-once")
	r := newRig(t, plane, user)
	var running sync.WaitGroup
	answers := make([]outcome, 100)
	for i := range answers {
		cmd := r.plugin(t, "prod", profile.ModeCertificate, r.cluster())
		running.Go(func() { answers[i] = run(cmd) })
	}
	running.Wait()
	for _, o := range answers {
		if o.code != 0 || o.stdout != answers[0].stdout {
			t.Fatalf("exit %d, %s", o.code, o.stderr)
		}
	}
	if got := requests(plane, user); got != 1 {
		t.Errorf("100 runs at once made %d certificate requests, want 1", got)
	}
}

// Certificates for people have no approver in a stock cluster: refused at once,
// and the hint says why.
func TestCertificateOfPerson(t *testing.T) {
	plane := sharedPlane(t)
	user := kube.User{Name: "person"}
	r := newRig(t, plane, user)
	o := run(r.plugin(t, "prod", profile.ModeCertificate, r.cluster()))
	if o.code == 0 || o.stdout != "" || !strings.Contains(o.stderr, "hint: ") || !strings.Contains(o.stderr, "signer-name") {
		t.Errorf("a person's certificate: %+v", o)
	}
	if got := requests(plane, user); got != 0 {
		t.Errorf("%d certificate requests were made", got)
	}
}

// forPeople is a profile that names a signer, for which no approver exists by
// himself.
func forPeople(r *rig, _ *daemon.BrokerOptions) {
	r.profile.Certificate = profile.Certificate{SignerName: certificatesv1.KubeAPIServerClientSignerName, Lifetime: 10 * time.Minute}
}

// A profile for people with a signer that has an approver.
func TestCertificateApproved(t *testing.T) {
	plane := sharedPlane(t)
	r := newRig(t, plane, alice, forPeople)
	decide(t, plane, alice.Name, certificatesv1.CertificateApproved)
	got := must(t, r.kubectl(r.kubeconfig(t, profile.ModeCertificate), "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"))
	if got != alice.Name {
		t.Errorf("whoami: %s", got)
	}
	c := r.credential(t, "prod", profile.ModeCertificate)
	if left := time.Until(c.ExpirationTimestamp); left > 10*time.Minute-30*time.Second || left < 8*time.Minute {
		t.Errorf("a certificate of 10 minutes is to be used for %v", left)
	}
}

// A request that is denied fails at once, one without a decision within the
// plugin's deadline.
func TestCertificateUndecided(t *testing.T) {
	t.Parallel() // it waits for a minute
	plane := sharedPlane(t)
	t.Run("denied", func(t *testing.T) {
		r := newRig(t, plane, kube.User{Name: "denied"}, forPeople)
		bindOnce(t, plane, "denied")
		decide(t, plane, "denied", certificatesv1.CertificateDenied)
		started := time.Now()
		o := run(r.plugin(t, "prod", profile.ModeCertificate, r.cluster()))
		if o.code == 0 || o.stdout != "" || !strings.Contains(o.stderr, "denied") || pace.Over(t, time.Since(started), 8*time.Second) {
			t.Errorf("denied, after %v: %+v", time.Since(started), o)
		}
	})
	t.Run("for somebody else", func(t *testing.T) {
		const signer = "holdfast.invalid/rogue"
		r := newRig(t, plane, kube.User{Name: "rogue"}, func(r *rig, _ *daemon.BrokerOptions) {
			r.profile.Certificate = profile.Certificate{SignerName: signer, Lifetime: 10 * time.Minute}
		})
		bindOnce(t, plane, "rogue")
		each(t, plane, "rogue", func(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) {
			if len(csr.Status.Conditions) == 0 {
				_ = plane.Decide(ctx, csr, certificatesv1.CertificateApproved) // tried again
			} else if len(csr.Status.Certificate) == 0 {
				_ = plane.IssueFor(ctx, csr, kube.User{Name: "somebody-else"})
			}
		})
		o := run(r.plugin(t, "prod", profile.ModeCertificate, r.cluster()))
		if o.code != 1 || o.stdout != "" || !strings.Contains(o.stderr, "is for CN=somebody-else") {
			t.Errorf("a certificate for somebody else: %+v", o)
		}
	})
	t.Run("pending", func(t *testing.T) {
		r := newRig(t, plane, kube.User{Name: "pending"}, forPeople)
		bindOnce(t, plane, "pending")
		started := time.Now()
		o := run(r.plugin(t, "prod", profile.ModeCertificate, r.cluster()))
		if took := time.Since(started); o.code == 0 || o.stdout != "" || !strings.Contains(o.stderr, "hint: ") || pace.Over(t, took, 62*time.Second) {
			t.Errorf("pending, after %v: %+v", took, o)
		}
	})
}

func bindOnce(t testing.TB, p *kube.Plane, user string) {
	t.Helper()
	if err := p.BindUser(user, "cluster-admin"); err != nil {
		t.Fatal(err)
	}
}

// decide approves or denies what a user asks for, until the test ends.
func decide(t *testing.T, p *kube.Plane, user string, how certificatesv1.RequestConditionType) {
	t.Helper()
	each(t, p, user, func(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) {
		if len(csr.Status.Conditions) == 0 {
			_ = p.Decide(ctx, csr, how) // tried again
		}
	})
}

// each calls do, again and again, with what a user asks for, until the test ends.
func each(t *testing.T, p *kube.Plane, user string, do func(context.Context, *certificatesv1.CertificateSigningRequest)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ; ctx.Err() == nil; <-tick.C {
			for _, csr := range p.CertificateRequests(ctx, user) {
				do(ctx, &csr)
			}
		}
	}()
}
