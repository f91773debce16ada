package enroll

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"slices"
	"testing"
	"time"

	"holdfast/client/clienttest"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/apiserver"
)

const bootstrap = "abcdef.0123456789abcdef"

// cluster is a stand-in for a cluster, an agent, and a directory for profiles.
type cluster struct {
	*apiserver.Server
	agent     *clienttest.Agent
	directory string
}

func start(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{apiserver.Start(t), clienttest.Start(t), t.TempDir()}
	c.AddToken(bootstrap, apiserver.User{Username: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers"}})
	return c
}

func (c *cluster) profile() *profile.Cluster {
	return &profile.Cluster{Server: c.URL, CertificateAuthorityData: string(c.CA)}
}

// request returns a request for a node's certificate for a key that is there.
func (c *cluster) request() *Request {
	c.agent.AddKey("node", keys.TLSClient, keys.ES256)
	return &Request{
		Directory: c.directory, Profile: "prod", Key: "node", Subject: NodeSubject("w1"), Timeout: 10 * time.Second,
		Source: Source{Token: bootstrap, Cluster: c.profile()},
	}
}

func TestEnroll(t *testing.T) {
	c := start(t)
	r := c.request()
	var waited []string
	r.Waiting = func(request, signer string) { waited = append(waited, request+" "+signer) }
	e, err := r.Enroll(t.Context(), dial(t, c.agent))
	check(t, err)
	if e.Key != "node" || e.User == nil || e.User.Username != "system:node:w1" || e.Unproven != nil || !e.Planned.Before(e.Leaf.NotAfter) {
		t.Errorf("got %+v", e)
	}
	if want := c.RequestNames()[0] + " " + NodeSigner; !slices.Equal(waited, []string{want}) {
		t.Errorf("waited for %q, want %q", waited, want)
	}
	p, err := Find(c.directory, "prod")
	check(t, err)
	if p == nil || p.Key != "node" || p.Renewal.SignerName != NodeSigner || p.Renewal.Jitter != DefaultJitter {
		t.Errorf("got %+v", p)
	}
}

// A failure writes no profile, and installs no certificate.
func TestEnrollFailures(t *testing.T) {
	tests := map[string]struct {
		change func(*cluster, *Request)
		kind   fault.Kind
		sent   bool // to the cluster
	}{
		"not approved":       {func(c *cluster, r *Request) { hold(c); r.Timeout = 300 * time.Millisecond }, fault.Deadline, true},
		"no key to create":   {func(_ *cluster, r *Request) { r.Key = "other" }, fault.Denied, false},
		"a key for a server": {func(c *cluster, r *Request) { c.agent.AddKey("web", keys.TLSServer, keys.ES256); r.Key = "web" }, fault.WrongPurpose, false},
		"no signer's name":   {func(_ *cluster, r *Request) { r.Signer = "no signer" }, fault.Internal, false},
	}
	for name, test := range tests {
		c := start(t)
		r := c.request()
		test.change(c, r)
		if _, err := r.Enroll(t.Context(), dial(t, c.agent)); fault.KindOf(err) != test.kind {
			t.Errorf("%s: got %v, want %s", name, err, test.kind)
		}
		if p, _ := Find(c.directory, "prod"); p != nil || len(c.agent.Calls(agentwire.InstallCertificate)) != 0 {
			t.Errorf("%s: a profile was written, or a certificate installed", name)
		}
		if sent := len(c.RequestNames()) > 0; sent != test.sent {
			t.Errorf("%s: sent to the cluster: %v", name, sent)
		}
	}
}

func hold(c *cluster) { c.Change(func(to *apiserver.Conduct) { to.Decision = apiserver.Hold }) }

// A request that does not fit is the caller's to correct, and nothing is sent.
func TestEnrollMistakes(t *testing.T) {
	tests := map[string]func(*cluster, *Request){
		"no key":          func(_ *cluster, r *Request) { r.Key = "" },
		"no cluster":      func(_ *cluster, r *Request) { r.Source.Cluster = nil },
		"another key":     func(c *cluster, r *Request) { c.write(t, "node.1") },
		"another cluster": func(c *cluster, r *Request) { c.write(t, "node"); r.Source.Cluster.Server = "https://elsewhere:6443" },
	}
	for name, change := range tests {
		c := start(t)
		r := c.request()
		change(c, r)
		if _, err := r.Enroll(t.Context(), dial(t, c.agent)); !errors.Is(err, ErrRequest) || fault.KindOf(err) != fault.BadRequest {
			t.Errorf("%s: got %v", name, err)
		}
		if n := len(c.Requests()); n != 0 {
			t.Errorf("%s: %d requests were sent", name, n)
		}
	}
}

// write writes a profile for a key.
func (c *cluster) write(t *testing.T, key string) {
	t.Helper()
	p := &profile.Profile{Name: "prod", Key: key, Cluster: *c.profile(), Renewal: profile.Renewal{SignerName: PeopleSigner}}
	check(t, profile.Write(c.directory, p))
}

// certify gives the key node a certificate.
func (c *cluster) certify(t *testing.T, from, until time.Duration) {
	t.Helper()
	c.agent.Change("node", func(k *agentwire.Key) {
		public, err := keys.ParsePublic(k.PublicKey)
		check(t, err)
		k.Chain = [][]byte{c.Certificate(pkix.Name{CommonName: "carol"}, public, time.Now().Add(from), time.Now().Add(until))}
	})
}

// A run reports each result to the function for it, and an error of that function
// counts.
func TestRun(t *testing.T) {
	c := start(t)
	c.request()
	c.write(t, "node")
	client := dial(t, c.agent)
	run := func(renewed error) (failures int, results []string) {
		all, faults, err := Due(c.directory, &Options{Agent: client, Timeout: 10 * time.Second})
		if err != nil || len(all) != 1 || len(faults) != 0 {
			t.Fatalf("got %v, %v, %v", all, faults, err)
		}
		failures, err = (&Run{
			Renewals: all,
			Renewed:  func(r *Renewal) error { results = append(results, "renewed "+r.Key.Info().Name); return renewed },
			Failed:   func(r *Renewal) { results = append(results, "failed "+string(fault.KindOf(r.Failed))) },
		}).Do(t.Context())
		check(t, err)
		return failures, results
	}
	expect := func(renewed error, failures int, want ...string) {
		t.Helper()
		if n, got := run(renewed); n != failures || !slices.Equal(got, want) {
			t.Errorf("got %d failures and %q, want %d and %q", n, got, failures, want)
		}
	}
	expect(nil, 1, "failed not-found") // no certificate yet
	c.certify(t, -10*time.Minute, 50*time.Minute)
	expect(nil, 0)
	c.certify(t, -50*time.Minute, 10*time.Minute)
	expect(nil, 0, "renewed node")
	c.certify(t, -50*time.Minute, 10*time.Minute)
	expect(errors.New("stdout is closed"), 1, "renewed node", "failed internal")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := new(Run).Do(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
}
