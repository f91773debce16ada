package broker

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/client"
	"holdfast/client/broker/ticket"
	"holdfast/client/clienttest"
	"holdfast/client/profile"
	"holdfast/internal/keys"
	"holdfast/internal/policy"
)

// A machine that sleeps cuts what was open; time that merely passes does not.
func TestSuspendCuts(t *testing.T) {
	agent, ca := clienttest.Start(t), clienttest.NewCA(t)
	agent.AddKey("alice", keys.TLSClient, keys.ES256)
	c := client.New(&client.Options{Socket: agent.Socket})
	defer c.Close()
	k, err := c.Key(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.InstallCertificate(t.Context(), "alice", [][]byte{ca.IssueFor("alice", k.Public())}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Server()}, ClientCAs: ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert}
	server.StartTLS()
	defer server.Close()

	var slept, read atomic.Int64
	b, err := New(Options{
		Agent: c, State: t.TempDir(), Profiles: t.TempDir(),
		LoadPolicy: func() (*policy.Policy, error) { return policy.BrokerUserDefault(0), nil },
		Clocks: func() (boot, up time.Duration) {
			n := read.Add(1)
			up = time.Duration(n) * time.Hour // time passes
			return up + 5*time.Hour + time.Duration(slept.Load()), up
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	b.running.Go(func() { b.watchClocks(ctx, time.Millisecond) })
	defer b.Shutdown(t.Context())
	defer stop()

	p := &profile.Profile{Name: "prod", Key: "alice", Cluster: profile.Cluster{Server: server.URL, CertificateAuthorityData: string(ca.PEM)}}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := b.issued.pools.Transport(ticket.Process{UID: 0, PID: 1}, p).RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, answer.Body)
		close(ended)
	}()
	for start := read.Load(); read.Load() < start+20; time.Sleep(time.Millisecond) {
		select {
		case <-ended:
			t.Fatal("cut although the machine did not sleep")
		default:
		}
	}
	slept.Store(int64(2 * time.Second))
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the machine slept, and the connection is still open")
	}
}

func TestSystemClocks(t *testing.T) {
	boot, up := systemClocks()
	if up <= 0 || boot < up-time.Millisecond {
		t.Errorf("boot %v, up %v", boot, up)
	}
}
