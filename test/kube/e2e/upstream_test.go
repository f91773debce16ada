package e2e

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"holdfast/client/profile"
	"holdfast/test/daemon"
	"holdfast/test/kube"
)

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
