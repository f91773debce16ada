package minted_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/client"
	"holdfast/client/broker/minted"
	"holdfast/client/broker/ticket"
	"holdfast/client/broker/upstream"
	"holdfast/client/clienttest"
	"holdfast/client/exchange/kubernetes"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/metrics"
	"holdfast/test/apiserver"
)

// rig is a mint between stand-ins for the agent and an API server.
type rig struct {
	agent  *clienttest.Agent
	server *apiserver.Server
	mint   *minted.Mint
	pools  *upstream.Pools
	prof   *profile.Profile
}

func newRig(t *testing.T, subject pkix.Name) *rig {
	t.Helper()
	r := &rig{agent: clienttest.Start(t), server: apiserver.Start(t)}
	c, err := client.Dial(context.Background(), &client.Options{Socket: r.agent.Socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	r.agent.AddKey("alice", keys.TLSClient, keys.ES256)
	key, err := c.Key(context.Background(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	chain := [][]byte{r.server.Certificate(subject, key.Public(), time.Now().Add(-time.Minute), time.Now().Add(time.Hour))}
	r.agent.Change("alice", func(k *agentwire.Key) { k.Chain = chain })
	registry := metrics.New()
	r.pools = upstream.New(upstream.Options{Agent: c, Metrics: registry})
	r.mint = minted.New(minted.Options{Agent: c, Pools: r.pools, Metrics: registry})
	t.Cleanup(r.pools.Close)
	t.Cleanup(r.mint.Close)
	r.prof = prod()
	r.prof.Cluster = profile.Cluster{Server: r.server.URL, CertificateAuthorityData: string(r.server.CA)}
	r.prof.Token = profile.Token{Namespace: "ci", ServiceAccount: "deployer"}
	return r
}

func node() pkix.Name {
	return pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}
}

func person() pkix.Name {
	return pkix.Name{CommonName: "alice", Organization: []string{"dev"}}
}

func (r *rig) request(mode string) minted.Request {
	return minted.Request{
		Holder:  ticket.Process{UID: uint32(os.Getuid()), PID: 1, Start: 1},
		Profile: r.prof, Mode: mode,
		Cluster: &brokerwire.Cluster{Server: r.server.URL, CertificateAuthorityData: r.server.CA},
	}
}

// get asks in a mode, as a process that never asked before.
func (r *rig) get(t *testing.T, mode string) brokerwire.Credential {
	t.Helper()
	c, err := r.mint.Credential(context.Background(), r.request(mode))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (r *rig) fails(t *testing.T, mode string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := r.mint.Credential(ctx, r.request(mode))
	if err == nil {
		t.Fatalf("got a credential until %s", c.ExpirationTimestamp)
	}
	return err
}

func expectHint(t *testing.T, err error, kind fault.Kind, message, hint string) {
	t.Helper()
	var e *fault.Error
	if !errors.As(err, &e) || !strings.Contains(e.Message, message) || !strings.Contains(e.Advice(), hint) {
		t.Errorf("got %v\n%+v\nwant …%s…\nhint: …%s…", err, e, message, hint)
	}
	if kind != "" && fault.KindOf(err) != kind {
		t.Errorf("got kind %s, want %s", fault.KindOf(err), kind)
	}
}

// signIn asks the cluster whom it takes a credential for.
func (r *rig) signIn(t *testing.T, c brokerwire.Credential) kubernetes.User {
	t.Helper()
	pair, err := tls.X509KeyPair([]byte(c.ClientCertificateData), []byte(c.ClientKeyData))
	if err != nil {
		t.Fatal(err)
	}
	direct, err := upstream.Direct(r.prof, &pair)
	if err != nil {
		t.Fatal(err)
	}
	user, err := (&kubernetes.Client{Server: r.server.URL, HTTP: direct}).WhoAmI(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return user
}

func TestCertificateOfNode(t *testing.T) {
	r := newRig(t, node())
	c := r.get(t, "certificate")
	if user := r.signIn(t, c); user.Username != "system:node:n1" || !slices.Contains(user.Groups, "system:nodes") {
		t.Errorf("signed in as %+v", user)
	}
	block, _ := pem.Decode([]byte(c.ClientKeyData))
	if _, err := x509.ParsePKCS8PrivateKey(block.Bytes); err != nil || c.Token != "" {
		t.Errorf("the key is no PKCS #8: %v", err)
	}
	signer, usages, lifetime := r.server.Asked(r.server.RequestNames()[0])
	if signer != "kubernetes.io/kube-apiserver-client-kubelet" || lifetime != 24*time.Hour || !slices.Equal(usages, []string{"client auth", "digital signature"}) {
		t.Errorf("asked %s for %v, %s", signer, usages, lifetime)
	}
	if left := time.Until(c.ExpirationTimestamp); left > 24*time.Hour-time.Minute || left < 24*time.Hour-2*time.Minute {
		t.Errorf("expires in %s", left)
	}
	if n := len(r.agent.Calls(agentwire.SignTLSClient)); n != 1 {
		t.Errorf("%d signatures", n)
	}
}

func TestCertificateOfPerson(t *testing.T) {
	r := newRig(t, person())
	err := r.fails(t, "certificate")
	expectHint(t, err, fault.Unsupported, "for nodes only", "use mode proxy; to let users approve requests would let them mint any identity")
	if len(r.server.RequestNames()) != 0 {
		t.Error("a request was made")
	}
	r.prof.Certificate.SignerName = "example.com/people"
	user := r.signIn(t, r.get(t, "certificate"))
	signer, _, lifetime := r.server.Asked(r.server.RequestNames()[0])
	if user.Username != "alice" || !slices.Contains(user.Groups, "dev") || signer != "example.com/people" || lifetime != 10*time.Minute {
		t.Errorf("%+v by %s for %s", user, signer, lifetime)
	}
}

func TestCertificateOfNodeInOtherGroups(t *testing.T) {
	for _, groups := range [][]string{nil, {"system:nodes", "admins"}, {"admins"}} {
		r := newRig(t, pkix.Name{CommonName: "system:node:n1", Organization: groups})
		expectHint(t, r.fails(t, "certificate"), fault.Unsupported, "O system:nodes alone", "CN=system:node:NAME,O=system:nodes")
	}
}

func TestToken(t *testing.T) {
	r := newRig(t, person())
	c := r.get(t, "token")
	if !strings.HasPrefix(c.Token, "token-") || c.ClientKeyData != "" || c.ClientCertificateData != "" {
		t.Errorf("got %+v", c)
	}
	if left := time.Until(c.ExpirationTimestamp); left > 9*time.Minute || left < 8*time.Minute {
		t.Errorf("expires in %s", left)
	}
	r.prof.Token.Lifetime = time.Minute // which Kubernetes does not issue
	r.get(t, "token")
	r.prof.Token.ServiceAccount = ""
	expectHint(t, r.fails(t, "token"), fault.Unsupported, "names no service account", "service-account")
}

func TestHundredRunsAreOneMint(t *testing.T) {
	for mode, path := range map[string]string{"token": "/token", "certificate": "/certificatesigningrequests"} {
		r := newRig(t, node())
		var group sync.WaitGroup
		var mu sync.Mutex
		seen := map[brokerwire.Credential]bool{}
		for i := range 100 {
			group.Go(func() {
				request := r.request(mode)
				request.Holder.PID = int32(i)
				c, err := r.mint.Credential(context.Background(), request)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				seen[c] = true
			})
		}
		group.Wait()
		posts := 0
		for _, each := range r.server.Requests() {
			if strings.HasPrefix(each, "POST") && strings.Contains(each, path) {
				posts++
			}
		}
		if len(seen) != 1 || posts != 1 || len(r.agent.Calls(agentwire.SignTLSClient)) != 1 {
			t.Errorf("%s: %d credentials, %d requests, %d signatures", mode, len(seen), posts, len(r.agent.Calls(agentwire.SignTLSClient)))
		}
	}
}

// reviews counts how often the cluster was asked about a credential.
func (r *rig) reviews() int {
	n := 0
	for _, each := range r.server.Requests() {
		if strings.Contains(each, "selfsubjectreviews") {
			n++
		}
	}
	return n
}

func TestTokenRefusedByTheCluster(t *testing.T) {
	r := newRig(t, person())
	first := r.get(t, "token")
	if again := r.get(t, "token"); again != first || r.reviews() != 1 {
		t.Errorf("got %v after %d reviews", again, r.reviews())
	}
	r = newRig(t, person())
	first = r.get(t, "token")
	r.server.AddToken("another", apiserver.User{}) // the stand-in numbers tokens by how many there are
	r.server.Revoke(first.Token)
	if again := r.get(t, "token"); again.Token == first.Token {
		t.Error("the same token after the cluster refused it")
	}
}

// The probe signs in with the minted certificate, and not with the hardware key.
func TestCertificateIsProbed(t *testing.T) {
	r := newRig(t, node())
	first := r.get(t, "certificate")
	if again := r.get(t, "certificate"); again != first || r.reviews() != 1 {
		t.Errorf("another certificate, or %d reviews", r.reviews())
	}
	if n := len(r.agent.Calls(agentwire.SignTLSClient)); n != 1 {
		t.Errorf("%d signatures", n)
	}
}

// A cluster that cannot be reached has refused nothing.
func TestProbeWithoutCluster(t *testing.T) {
	r := newRig(t, person())
	first := r.get(t, "token")
	r.server.Stop()
	if again := r.get(t, "token"); again != first {
		t.Error("another credential")
	}
	r = newRig(t, person())
	first = r.get(t, "token")
	r.server.Change(func(c *apiserver.Conduct) { c.Down = 1 })
	if again := r.get(t, "token"); again != first {
		t.Error("another credential after 503")
	}
}

func TestWhatTheClusterSays(t *testing.T) {
	for name, c := range map[string]struct {
		mode          string
		change        func(*rig)
		message, hint string
	}{
		"denied": {"certificate", func(r *rig) { r.conduct(apiserver.Deny) }, "was denied", "mode proxy"},
		"failed": {"certificate", func(r *rig) { r.conduct(apiserver.Fail) }, "failed", "signer"},
		"other subject": {"certificate", func(r *rig) {
			r.server.Change(func(c *apiserver.Conduct) { c.Subject = &pkix.Name{CommonName: "eve"} })
		}, "CN=eve", "signer"},
		"clock ahead":  {"certificate", func(r *rig) { r.server.Change(func(c *apiserver.Conduct) { c.Skew = time.Hour }) }, "valid from", "clocks"},
		"clock behind": {"certificate", func(r *rig) { r.server.Change(func(c *apiserver.Conduct) { c.Skew = -48 * time.Hour }) }, "expired", "clocks"},
		"too short":    {"certificate", func(r *rig) { r.server.Change(func(c *apiserver.Conduct) { c.Lifetime = 20 * time.Second }) }, "ends on", "clocks"},
		"down":         {"token", func(r *rig) { r.server.Stop() }, "nothing listens", "API server running"},
		"unavailable":  {"token", func(r *rig) { r.server.Change(func(c *apiserver.Conduct) { c.Down = 9 }) }, "503", "busy"},
		"no account":   {"token", func(r *rig) { r.prof.Token.ServiceAccount = "a/b" }, "service account", ""},
		"agent gone":   {"token", func(r *rig) { r.agent.Stop() }, "agent", ""},
		"TPM locked": {"token", func(r *rig) {
			r.agent.Fail(agentwire.SignTLSClient, &fault.Error{Kind: fault.DeviceLocked, Message: "the TPM is locked out", Hint: "wait", RetryAfter: 7 * time.Second})
		}, "the TPM is locked out", "wait"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, node())
			c.change(r)
			err := r.fails(t, c.mode)
			expectHint(t, err, "", c.message, c.hint)
			before := len(r.server.Requests())
			tries := 0
			if name == "down" || name == "unavailable" || name == "agent gone" {
				tries = 4 // what may pass by itself is waited for
			}
			if again := r.fails(t, c.mode); again.Error() != err.Error() || len(r.server.Requests()) > before+tries {
				t.Errorf("the next caller got %v, and the cluster %d more requests", again, len(r.server.Requests())-before)
			}
			var e *fault.Error
			if errors.As(err, &e) && e.RetryAfter <= 0 {
				t.Error("no word of when to try again")
			}
		})
	}
}

func (r *rig) conduct(decision string) {
	r.server.Change(func(c *apiserver.Conduct) { c.Decision = decision })
}

// A request that waits for a user goes on when a caller has given up: there is
// one, and the next caller gets its certificate.
func TestPending(t *testing.T) {
	r := newRig(t, node())
	r.conduct(apiserver.Hold)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := r.mint.Credential(ctx, r.request("certificate"))
		done <- err
	}()
	for len(r.server.RequestNames()) == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	go func() {
		_, err := r.mint.Credential(context.Background(), r.request("certificate"))
		done <- err
	}()
	r.server.Decide(r.server.RequestNames()[0], apiserver.Issue)
	if err := <-done; err != nil || len(r.server.RequestNames()) != 1 {
		t.Errorf("%v, %d requests", err, len(r.server.RequestNames()))
	}
}

// Nothing of what is minted is in what is shown of it.
func TestNoSecretInErrors(t *testing.T) {
	r := newRig(t, person())
	c := r.get(t, "token")
	r.server.Revoke(c.Token)
	r.server.Stop()
	r.mint.Forget("", nil)
	if text := fmt.Sprintf("%+v", r.fails(t, "token")); strings.Contains(text, c.Token) {
		t.Error("the token is in", text)
	}
}
