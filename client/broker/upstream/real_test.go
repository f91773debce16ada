package upstream_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"strings"
	"testing"

	"holdfast/client"
	"holdfast/client/broker/upstream"
	"holdfast/client/clienttest"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/metrics"
	"holdfast/test/daemon"
	"holdfast/test/swtpm"
)

// The same with a key in a TPM, behind a real agent: 100 requests, then upgrades,
// a renewal, and the agent's end.
func TestRealAgent(t *testing.T) {
	ctx := context.Background()
	agent := daemon.Start(t, daemon.Options{Device: swtpm.Start(t).Device()})
	c, err := client.Dial(ctx, &client.Options{Socket: agent.Socket})
	check(t, err)
	t.Cleanup(func() { c.Close() })
	ca := clienttest.NewCA(t)
	enroll(t, c, ca, "alice")
	server := startServer(t, ca, nil)
	pools := upstream.New(upstream.Options{Agent: c, Metrics: metrics.New()})
	t.Cleanup(pools.Close)
	prof := &profile.Profile{Name: "prod", Key: "alice", Cluster: profile.Cluster{Server: server.URL, CertificateAuthorityData: string(ca.PEM)}}
	who := me()
	who.Start = startOf(t)
	tr := pools.Transport(who, prof)
	for i, got := range together(t, tr, 100) {
		if !strings.HasPrefix(got, "alice HTTP/2.0 ") {
			t.Fatalf("request %d: %s", i, got)
		}
	}
	for range 3 {
		upgraded(t, pools.Upgrade(who, prof)).body.Close()
	}
	if _, signatures := pools.Counts("prod"); signatures != 2 {
		t.Errorf("%d signatures for 100 requests and 3 upgrades, want 2", signatures)
	}
	w := watch(t, tr)
	enroll(t, c, ca, "alice.1") // a newer generation of the key
	pools.Retire("prod", nil)
	get(t, tr, "/who")
	if _, signatures := pools.Counts("prod"); signatures != 3 {
		t.Errorf("%d signatures after the renewal, want 3", signatures)
	}
	agent.Stop()
	get(t, tr, "/who") // what is open needs no agent
	close(server.stop)
	w.expect(t, "end\n")
	pools.Drop("prod")
	if _, err := send(tr, "GET", "/who", nil); err == nil {
		t.Error("a handshake without an agent")
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// enroll makes a key that has a certificate for alice.
func enroll(t *testing.T, c *client.Client, ca *clienttest.CA, name string) {
	t.Helper()
	ctx := context.Background()
	_, err := c.CreateKey(ctx, agentwire.CreateKeyParameters{Name: name, Purpose: "tls-client", Algorithm: "ES256"})
	check(t, err)
	k, err := c.Key(ctx, name)
	check(t, err)
	request, err := k.CertificateRequest(&x509.CertificateRequest{Subject: pkix.Name{CommonName: "alice"}})
	check(t, err)
	_, err = c.InstallCertificate(ctx, name, [][]byte{ca.Issue(request)})
	check(t, err)
}

// startOf returns when this process started, as the kernel counts.
func startOf(t *testing.T) uint64 {
	t.Helper()
	stat, err := os.ReadFile("/proc/self/stat")
	check(t, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var start uint64
	for _, digit := range fields[19] {
		start = start*10 + uint64(digit-'0')
	}
	return start
}
