package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"holdfast/client/profile"
	"holdfast/test/daemon"
	"holdfast/test/kube"
)

// other is a uid that nobody has.
const other = 47123

// request is a request with a ticket of this process.
func (r *rig) request(t testing.TB) request {
	t.Helper()
	endpoint := r.broker.GetStatus().Endpoint
	return request{
		Address: endpoint.Address, ServerName: r.profile.ServerName(), CA: endpoint.Certificate,
		Path: "/apis/authentication.k8s.io", Token: r.credential(t, r.profile.Name, profile.ModeProxy).Token,
	}
}

// A ticket counts on connections of the process that it was given to.
func TestTicket(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice, withOtherProfile)
	q := r.request(t)
	client := q.client()
	defer client.CloseIdleConnections()
	if code, body, err := q.send(client); code != http.StatusOK {
		t.Fatalf("the process that has the ticket: %d %s, %v", code, body, err)
	}
	t.Run("without a ticket, on the same connection", func(t *testing.T) {
		for _, token := range []string{"", "guess", q.Token + "x", q.Token[:len(q.Token)-1]} {
			bad := q
			bad.Token = token
			if code, body, err := bad.send(client); code != http.StatusUnauthorized {
				t.Errorf("token of %d bytes: %d %s, %v", len(token), code, body, err)
			}
		}
		if code, body, err := q.send(client); code != http.StatusOK {
			t.Errorf("with the ticket again: %d %s, %v", code, body, err)
		}
	})
	t.Run("another process of the same uid", func(t *testing.T) {
		refused(t, run(act(t, "requester", q)))
	})
	t.Run("another uid", func(t *testing.T) {
		cmd := act(t, "requester", q)
		cmd.Path = runnable(t, r, cmd.Path)
		refused(t, run(as(other, cmd)))
	})
	t.Run("another profile's name", func(t *testing.T) {
		bad := q
		bad.ServerName = "other." + profile.Domain
		if code, body, err := bad.send(bad.client()); code != http.StatusUnauthorized {
			t.Errorf("on another name: %d %s, %v", code, body, err)
		}
	})
	t.Run("no such profile", func(t *testing.T) {
		bad := q
		bad.ServerName = "none." + profile.Domain
		if code, body, err := bad.send(bad.client()); code == http.StatusOK {
			t.Errorf("on the name of no profile: %d %s, %v", code, body, err)
		}
	})
	t.Run("after the process has ended", func(t *testing.T) {
		gone := q
		gone.Token = r.ticketOfEnded(t)
		if code, body, err := gone.send(client); code != http.StatusUnauthorized {
			t.Errorf("a dead process's ticket: %d %s, %v", code, body, err)
		}
	})
}

// withOtherProfile gives the rig a second profile, of the same key.
func withOtherProfile(r *rig, o *daemon.BrokerOptions) {
	other := r.newProfile("other")
	other.Key = r.profile.Key
	o.Profiles = append(o.Profiles, other)
}

// refused holds when a requester was answered 401.
func refused(t *testing.T, o outcome) {
	t.Helper()
	if !strings.HasPrefix(o.stdout, "401 ") {
		t.Errorf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
}

// ticketOfEnded returns the ticket of a shell that has run the plugin and ended.
func (r *rig) ticketOfEnded(t testing.TB) string {
	t.Helper()
	plugin := r.plugin(t, r.profile.Name, profile.ModeProxy, nil)
	shell := exec.Command("sh", append([]string{"-c", `"$@"; true`, "sh"}, plugin.Args...)...)
	shell.Env = plugin.Env
	return parse(t, must(t, shell)).Token
}

// runnable copies a program to where other uids can run it.
func runnable(t testing.TB, r *rig, program string) string {
	t.Helper()
	from, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	path := filepath.Join(r.dir, "run-"+filepath.Base(program))
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// The same kubeconfig in the hands of another uid: first the broker's socket is
// shut to it, then, wide open, the broker itself.
func TestOtherUID(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice)
	kubeconfig := r.kubeconfig(t, profile.ModeProxy)
	kubectl := func() *exec.Cmd {
		cmd := r.kubectl(kubeconfig, "auth", "whoami")
		cmd.Path = filepath.Join(r.dir, "run-kubectl")
		return as(other, cmd)
	}
	runnable(t, r, r.plane.Program("kubectl"))
	o := run(kubectl())
	if o.code == 0 || o.stdout != "" || !strings.Contains(o.stderr, "executable holdfast-exec-plugin failed with exit code 3") {
		t.Errorf("another uid, socket shut: %+v", o)
	}
	r.broker.Open()
	before := r.signatures()
	o = run(kubectl())
	if o.code == 0 || o.stdout != "" || !strings.Contains(o.stderr, "executable holdfast-exec-plugin failed with exit code 4") {
		t.Errorf("another uid, socket open: %+v", o)
	}
	if got := r.signatures() - before; got != 0 {
		t.Errorf("another uid cost %d signatures", got)
	}
}

// Somebody listens where the proxy should be: kubectl does not give them the
// ticket, because their certificate is not the pinned one.
func TestSquattedPort(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice)
	var requests atomic.Int32
	squatter := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	squatter.EnableHTTP2 = true
	squatter.StartTLS()
	defer squatter.Close()
	config := r.config(t, profile.ModeProxy)
	config.Clusters["test"].Server = "https://" + squatter.Listener.Addr().String()
	o := run(r.kubectl(r.write(t, config), "auth", "whoami"))
	if o.code == 0 || !strings.Contains(o.stderr, "x509: certificate signed by unknown authority") && !strings.Contains(o.stderr, "x509: certificate is valid for") {
		t.Errorf("kubectl against a squatter: %+v", o)
	}
	if requests.Load() != 0 {
		t.Error("the squatter was sent a request")
	}
}

// A cluster that is not the profile's gets no request; the person is told why.
func TestUpstreamIdentity(t *testing.T) {
	plane := sharedPlane(t)
	t.Run("another name", func(t *testing.T) {
		r := newRig(t, plane, alice, func(r *rig, _ *daemon.BrokerOptions) { r.profile.Cluster.TLSServerName = "api.elsewhere.example" })
		explains(t, r, "api.elsewhere.example was expected", "tls-server-name")
	})
	t.Run("another authority", func(t *testing.T) {
		stranger, err := kube.NewAuthority(filepath.Join(t.TempDir(), "pki"), "stranger")
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, plane, alice, func(r *rig, _ *daemon.BrokerOptions) {
			r.profile.Cluster.CertificateAuthorityData = string(stranger.PEM)
		})
		explains(t, r, `the profile trusts "CN=stranger"`, "another server may be in between")
	})
	t.Run("nobody there", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		_ = l.Close()
		r := newRig(t, plane, alice, func(r *rig, _ *daemon.BrokerOptions) { r.profile.Cluster.Server = "https://" + address })
		explains(t, r, "nothing listens on "+address, "is the API server running")
	})
	t.Run("wants no certificate of ours", func(t *testing.T) { checkStranger(t, plane) })
}

// explains holds when kubectl shows one fact and its hint, and the device has
// signed nothing.
func explains(t *testing.T, r *rig, fact, hint string) {
	t.Helper()
	before := r.signatures()
	o := run(r.kubectl(r.kubeconfig(t, profile.ModeProxy), "auth", "whoami"))
	text, ok := strings.CutPrefix(o.stderr, "Error from server (BadGateway): holdfast: ")
	_, after, found := strings.Cut(text, fact)
	if o.code == 0 || !ok || !found || !strings.Contains(after, "; ") || !strings.Contains(after, hint) {
		t.Errorf("kubectl: %+v, want the fact %q and the hint %q", o, fact, hint)
	}
	if got := r.signatures() - before; got != 0 {
		t.Errorf("the device signed %d times for it", got)
	}
}

// checkStranger: a server with the right name and authority gets requests, but
// never the ticket.
func checkStranger(t *testing.T, plane *kube.Plane) {
	certFile, keyFile, err := plane.Authority.Server(fmt.Sprintf("stranger-%d", os.Getpid()), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	var headers atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers.Store(r.Header.Clone())
		http.Error(w, "no", http.StatusTeapot)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	server.StartTLS()
	defer server.Close()
	r := newRig(t, plane, alice, func(r *rig, _ *daemon.BrokerOptions) { r.profile.Cluster.Server = server.URL })
	_ = run(r.kubectl(r.kubeconfig(t, profile.ModeProxy), "get", "--raw", "/version"))
	got, ok := headers.Load().(http.Header)
	if !ok {
		t.Fatal("the upstream saw no request")
	}
	if a := got.Values("Authorization"); len(a) != 0 {
		t.Errorf("the upstream was sent %d Authorization headers", len(a))
	}
}
