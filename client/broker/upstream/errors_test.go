package upstream_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/client"
	"holdfast/client/broker/upstream"
	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
)

// failure sends a request that has to fail, and returns how.
func (r *rig) failure(t *testing.T) *upstream.Error {
	t.Helper()
	_, err := send(r.transport(), "GET", "/who", nil)
	var e *upstream.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an upstream.Error", err)
	}
	return e
}

func expectError(t *testing.T, e *upstream.Error, kind, message, hint string) {
	t.Helper()
	if f := e.Fault; string(e.Class) != kind || !strings.Contains(f.Message, message) || !strings.Contains(f.Advice(), hint) {
		t.Errorf("got %s: %s\nhint: %s\ncause: %v\nwant %s: …%s…\nhint: …%s…", e.Class, f.Message, f.Advice(), f.Err, kind, message, hint)
	}
}

// listen accepts connections and gives them to serve.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return "https://" + l.Addr().String()
}

func TestErrors(t *testing.T) {
	closed := listen(t, func(net.Conn) {})
	plain := listen(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.0 400 Bad Request\r\n\r\n") })
	silent := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	device := func(kind fault.Kind) func(*rig) {
		return func(r *rig) {
			r.agent.Fail(agentwire.SignTLSClient, &fault.Error{Kind: kind, Message: "the TPM is " + string(kind), Hint: "wait"})
		}
	}
	for name, c := range map[string]struct {
		change              func(*rig)
		kind, message, hint string
	}{
		"no agent": {func(r *rig) { r.agent.Stop() }, "agent", "agent", "holdfast"},
		"no certificate": {func(r *rig) { r.agent.Change("alice", func(k *agentwire.Key) { k.Chain = nil }) },
			"key", "key alice has no certificate", "holdfast enroll kubernetes prod"},
		"expired certificate": {func(r *rig) {
			r.agent.Change("alice", func(k *agentwire.Key) { k.Chain = [][]byte{r.expiring(t, k.PublicKey, time.Now().Add(-time.Minute))} })
		}, "key", "expired on", "holdfast enroll kubernetes prod"},
		"no key":       {func(r *rig) { r.profile.Key = "carol" }, "key", "no key", "holdfast"},
		"TPM locked":   {device(fault.DeviceLocked), "key", "device-locked", "wait"},
		"TPM wedged":   {device(fault.DeviceWedged), "key", "device-wedged", "wait"},
		"TPM too slow": {device(fault.Deadline), "timeout", "deadline", "wait"},
		"another name": {func(r *rig) { r.profile.Cluster.TLSServerName = "api.prod" }, "tls", "presented a certificate for localhost, 127.0.0.1, and api.prod was expected", "tls-server-name in profile prod"},
		"another CA":   {func(r *rig) { r.profile.Cluster.CertificateAuthorityData = string(otherCA(t)) }, "tls", `issued by "CN=test CA", and the profile trusts "CN=`, "kubeconfig add"},
		"no CA":        {func(r *rig) { r.profile.Cluster.CertificateAuthorityData = "" }, "tls", "no certificate", "kubeconfig add"},
		"no URL":       {func(r *rig) { r.profile.Cluster.Server = "http://x" }, "tls", "no https URL", "kubeconfig add"},
		"nobody there": {func(r *rig) { r.profile.Cluster.Server = "https://" + l.Addr().String() }, "network", "nothing listens on " + l.Addr().String(), "API server"},
		"no such name": {func(r *rig) { r.profile.Cluster.Server = "https://api.invalid" }, "network", "api.invalid cannot be resolved", "VPN"},
		"closes":       {func(r *rig) { r.profile.Cluster.Server = closed }, "network", "lost before the answer", "try again"},
		"no TLS":       {func(r *rig) { r.profile.Cluster.Server = plain }, "tls", "does not speak TLS", "server right"},
		"never answers": {func(r *rig) {
			r.profile.Cluster.Server = silent
			r.pools.Wait(time.Second, 50*time.Millisecond, time.Second)
		}, "timeout", "gave no answer in time", "network"},
		"old TLS": {func(r *rig) { r.server.TLS.MaxVersion = tls.VersionTLS12 }, "tls", "does not speak TLS 1.3", "--tls12"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			c.change(r)
			expectError(t, r.failure(t), c.kind, c.message, c.hint)
		})
	}
}

func otherCA(t *testing.T) []byte { return clienttest.NewCA(t).PEM }

func TestErrorsHaveTheirCause(t *testing.T) {
	r := newRig(t, nil)
	r.agent.Fail(agentwire.SignTLSClient, &fault.Error{Kind: fault.DeviceLocked, Message: "locked"})
	if e, ok := fault.AsError(r.failure(t)); !ok || e.Kind != fault.DeviceLocked {
		t.Errorf("got %v", e)
	}
	r.agent.Stop()
	var unreachable *client.UnreachableError
	if err := r.failure(t); !errors.As(err, &unreachable) {
		t.Errorf("got %v", err)
	}
}

// With TLS 1.3 a server refuses a certificate after the client is done: every
// request has to learn why, over HTTP/2 and HTTP/1.1, and none is sent again with
// another signature.
func TestServerRefusesCertificate(t *testing.T) {
	for _, http2 := range []bool{true, false} {
		r := newRig(t, func(s *server) {
			s.EnableHTTP2 = http2
			s.TLS.ClientCAs = clienttest.NewCA(t).Pool()
		})
		for range 20 {
			before := r.signatures(t)
			expectError(t, r.failure(t), "tls", "refused the certificate of key alice: ", "holdfast enroll kubernetes prod")
			if n := r.signatures(t) - before; n != 1 {
				t.Fatalf("HTTP/2 %v: %d signatures for one refusal", http2, n)
			}
		}
		for _, got := range together(t, r.transport(), 50) {
			if !strings.Contains(got, "refused the certificate") {
				t.Errorf("HTTP/2 %v: %s", http2, got)
			}
		}
		r.connections(t, 0)
	}
}

func TestServerSaysExpired(t *testing.T) {
	r := newRig(t, func(s *server) {
		s.TLS.Time = func() time.Time { return time.Now().Add(48 * time.Hour) }
	})
	expectError(t, r.failure(t), "tls", "refused the certificate of key alice: ", "holdfast")
}

// A handshake goes on when the request that started it is given up: others wait.
func TestRequestGivenUp(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, nil)
	r.server.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		<-release
		return nil, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		request, _ := http.NewRequestWithContext(ctx, "GET", "https://x/who", nil)
		_, err := read(r.transport().RoundTrip(request))
		done <- err
	}()
	eventually(t, func() string {
		if r.server.accepted() == 0 {
			return "no connection"
		}
		return ""
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(release)
	get(t, r.transport(), "/who")
	if n := r.signatures(t); n != 1 || r.server.accepted() != 1 {
		t.Errorf("%d signatures and %d connections, want 1", n, r.server.accepted())
	}
}

// A connection that ended while it was idle costs no request.
func TestServerRestarts(t *testing.T) {
	for _, http2 := range []bool{true, false} {
		r := newRig(t, func(s *server) { s.EnableHTTP2 = http2 })
		for range 20 {
			get(t, r.transport(), "/who")
			r.server.CloseClientConnections()
		}
		if n := r.signatures(t); n > 20 {
			t.Errorf("%d signatures for 20 restarts", n)
		}
	}
}

// A request that waits for a handshake when connections are cut was admitted before that.
func TestDropEndsWaitingRequests(t *testing.T) {
	for _, upgrade := range []bool{false, true} {
		silent := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
		r := newRig(t, nil)
		r.profile.Cluster.Server = silent
		tr := r.transport()
		if upgrade {
			tr = r.pools.Upgrade(me(), r.profile)
		}
		done := make(chan error)
		go func() {
			_, err := send(tr, "GET", "/who", nil)
			done <- err
		}()
		eventually(t, func() string {
			if _, all := r.pools.Len(); all == 0 {
				return "no pool"
			}
			return ""
		})
		r.pools.Drop("prod")
		if err := <-done; err == nil || !strings.Contains(err.Error(), "were cut") {
			t.Errorf("upgrade %v: got %v", upgrade, err)
		}
	}
}

func TestDropEndsWaiting(t *testing.T) {
	silent := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	r := newRig(t, nil)
	good := r.profile.Cluster.Server
	r.profile.Cluster.Server = silent
	tr := r.transport()
	done := make(chan error)
	go func() {
		_, err := send(tr, "GET", "/who", nil)
		done <- err
	}()
	eventually(t, func() string {
		if _, all := r.pools.Len(); all == 0 {
			return "no pool"
		}
		return ""
	})
	r.profile.Cluster.Server = good
	r.pools.Close()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "ending") {
		t.Errorf("got %v", err)
	}
	if _, err := send(r.transport(), "GET", "/who", nil); err == nil {
		t.Error("a request went through closed pools")
	}
}
