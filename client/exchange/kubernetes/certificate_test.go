package kubernetes

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/test/apiserver"
)

const signer = "kubernetes.io/kube-apiserver-client"

func TestRequestCertificate(t *testing.T) {
	server, c, _ := start(t)
	csr, key := request(t, alice())
	var created string
	chain, err := c.RequestCertificate(soon(t), CertificateRequest{
		CSR: csr, SignerName: signer, Lifetime: 20 * time.Minute, Name: "holdfast-alice-", Created: func(name string) { created = name },
	})
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil || !key.PublicKey.Equal(leaf.PublicKey) || leaf.Subject.CommonName != "alice" {
		t.Errorf("got a certificate of %v, %v", leaf, err)
	}
	if !strings.HasPrefix(created, "holdfast-alice-") || !slices.Equal(server.RequestNames(), []string{created}) {
		t.Errorf("told of %q, and the server has %q", created, server.RequestNames())
	}
	asked, usages, lifetime := server.Asked(created)
	if asked != signer || lifetime != 20*time.Minute || !slices.Equal(usages, []string{"client auth", "digital signature"}) {
		t.Errorf("asked for %s, %q, %s", asked, usages, lifetime)
	}
}

// The wait ends with the approval, whether the server allows watches or not.
func TestApproval(t *testing.T) {
	for name, conduct := range map[string]apiserver.Conduct{
		"a watch":                         {Decision: apiserver.Hold},
		"no watch":                        {Decision: apiserver.Hold, NoWatch: true},
		"approved first, and issued then": {Decision: apiserver.Approve},
	} {
		server, c, _ := start(t)
		server.Change(func(c *apiserver.Conduct) { *c = conduct })
		csr, _ := request(t, alice())
		_, err := c.RequestCertificate(soon(t), CertificateRequest{CSR: csr, SignerName: signer, Created: func(name string) {
			go server.Decide(name, apiserver.Issue)
		}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A server that is away for a while does not lose the request.
func TestWaitOutlastsTheServer(t *testing.T) {
	server, c, waits := start(t)
	server.Change(func(c *apiserver.Conduct) { c.Decision = apiserver.Hold })
	csr, _ := request(t, alice())
	asked := 0
	c.pause = func(ctx context.Context, d time.Duration) error {
		if asked++; asked == 12 {
			server.Decide(server.RequestNames()[0], apiserver.Issue)
		}
		return waits.pause(ctx, d)
	}
	_, err := c.RequestCertificate(soon(t), CertificateRequest{CSR: csr, SignerName: signer, Created: func(string) {
		server.Change(func(c *apiserver.Conduct) { c.Down = 25 })
	}})
	if err != nil {
		t.Fatal(err)
	}
	all := waits.all()
	if !slices.IsSorted(all) || all[1] < time.Second || all[len(all)-1] != lastDelay {
		t.Errorf("waited %v, want ever longer, at most %s", all, lastDelay)
	}
}

// A watch that is forbidden stays forbidden.
func TestForbiddenWatch(t *testing.T) {
	server, c, waits := start(t)
	server.Change(func(c *apiserver.Conduct) { c.Decision, c.NoWatch = apiserver.Hold, true })
	csr, _ := request(t, alice())
	asked := 0
	c.pause = func(ctx context.Context, d time.Duration) error {
		if asked++; asked == 4 {
			server.Decide(server.RequestNames()[0], apiserver.Issue)
		}
		return waits.pause(ctx, d)
	}
	if _, err := c.RequestCertificate(soon(t), CertificateRequest{CSR: csr, SignerName: signer}); err != nil {
		t.Fatal(err)
	}
	watches := 0
	for _, r := range server.Requests() {
		if strings.HasPrefix(r, "GET "+requestsPath+" by") {
			watches++
		}
	}
	if watches != 1 {
		t.Errorf("asked for %d watches in %q", watches, server.Requests())
	}
}

func TestDecisions(t *testing.T) {
	for decision, want := range map[string]string{apiserver.Deny: "was denied: not ?[31mtoday", apiserver.Fail: "failed: not"} {
		server, c, _ := start(t)
		server.Change(func(c *apiserver.Conduct) { c.Decision, c.Message = decision, "not \x1b[31mtoday\n" })
		csr, _ := request(t, alice())
		_, err := c.RequestCertificate(soon(t), CertificateRequest{CSR: csr, SignerName: signer})
		wantError(t, err, "certificate signing request holdfast-00000 ", want)
		if e := new(DecisionError); !errors.As(err, &e) || e.Name != "holdfast-00000" || e.Reason != "Decided" {
			t.Errorf("%s: got %#v", decision, err)
		}
	}
}

func TestDeleted(t *testing.T) {
	for _, noWatch := range []bool{false, true} {
		server, c, _ := start(t)
		server.Change(func(c *apiserver.Conduct) { c.Decision, c.NoWatch = apiserver.Hold, noWatch })
		csr, _ := request(t, alice())
		_, err := c.RequestCertificate(soon(t), CertificateRequest{CSR: csr, SignerName: signer, Created: func(name string) { go server.Delete(name) }})
		wantError(t, err, "it was deleted")
	}
}

func TestPending(t *testing.T) {
	for decision, want := range map[string]string{apiserver.Hold: "is not approved yet", apiserver.Approve: "no signer has issued"} {
		for _, noWatch := range []bool{false, true} {
			server, c, waits := start(t)
			server.Change(func(c *apiserver.Conduct) { c.Decision, c.NoWatch = decision, noWatch })
			csr, _ := request(t, alice())
			err := c.soonEnds(CertificateRequest{CSR: csr, SignerName: signer})
			wantError(t, err, want)
			if e := new(PendingError); !errors.As(err, &e) || e.Approved != (decision == apiserver.Approve) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: got %#v after %v", decision, err, waits.all())
			}
		}
	}
}

// soonEnds requests a certificate with a short timeout. A slow machine gets more time,
// until the timeout comes after the request was made.
func (c *Client) soonEnds(r CertificateRequest) (err error) {
	c.pause = nil // a watch that ends with the context, and questions that do
	for timeout := 200 * time.Millisecond; timeout < time.Minute && !errors.As(err, new(*PendingError)); timeout *= 2 {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		_, err = c.RequestCertificate(ctx, r)
		cancel()
	}
	return err
}

func TestCertificateIsChecked(t *testing.T) {
	_, other := request(t, alice())
	mallory := alice()
	mallory.CommonName = "mallory"
	more := alice()
	more.Organization = append(more.Organization, "admins")
	tests := map[string]struct {
		conduct apiserver.Conduct
		want    string
	}{
		"another key":     {apiserver.Conduct{Key: other.Public()}, "is for another key"},
		"another subject": {apiserver.Conduct{Subject: &mallory}, "is for CN=mallory"},
		"more groups":     {apiserver.Conduct{Subject: &more}, "is for CN=alice"},
		"fewer groups":    {apiserver.Conduct{Subject: &pkix.Name{CommonName: "alice"}}, "is for CN=alice, not for CN=alice,O="},
		"too early":       {apiserver.Conduct{Skew: time.Hour, Lifetime: 2 * time.Hour}, "is valid from"},
		"too late":        {apiserver.Conduct{Skew: -2 * time.Hour, Lifetime: time.Hour}, "expired on"},
		"for servers":     {apiserver.Conduct{Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, "does not allow its use by a client"},
	}
	for name, test := range tests {
		server, c, _ := start(t)
		server.Change(func(c *apiserver.Conduct) { *c = test.conduct })
		csr, _ := request(t, alice())
		chain, err := c.RequestCertificate(soon(t), CertificateRequest{CSR: csr, SignerName: signer})
		wantError(t, err, test.want)
		e := new(CertificateError)
		if !errors.As(err, &e) || chain != nil {
			t.Errorf("%s: got %#v and %d certificates", name, err, len(chain))
		}
		if clocks := strings.HasPrefix(name, "too "); clocks != strings.Contains(e.Hint, "clock") {
			t.Errorf("%s: hint %q", name, e.Hint)
		}
	}
}

// The order of a subject's attributes is the signer's.
func TestSubjectOrder(t *testing.T) {
	server, c, _ := start(t)
	sorted := pkix.Name{CommonName: "alice", Organization: []string{"dev", "ops"}}
	server.Change(func(c *apiserver.Conduct) { c.Subject = &sorted })
	csr, _ := request(t, alice())
	if _, err := c.RequestCertificate(soon(t), CertificateRequest{CSR: csr, SignerName: signer}); err != nil {
		t.Error(err)
	}
}

// A program that is run again waits for what it asked for before.
func TestOnce(t *testing.T) {
	server, c, _ := start(t)
	server.Change(func(c *apiserver.Conduct) { c.Decision = apiserver.Hold })
	csr, key := request(t, alice())
	var created, found string
	r := CertificateRequest{CSR: csr, SignerName: signer, Once: "holdfast-alice-1", Created: func(n string) { created = n }, Found: func(n string) { found = n }}
	wantError(t, c.soonEnds(r), "holdfast-alice-1 is not approved yet")
	server.Decide("holdfast-alice-1", apiserver.Issue)
	again, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: alice()}, key)
	if err != nil {
		t.Fatal(err)
	}
	r.CSR = again // signed afresh
	if _, err := c.RequestCertificate(soon(t), r); err != nil || created != r.Once || found != r.Once || len(server.RequestNames()) != 1 {
		t.Errorf("got %v; created %q, found %q, of %q", err, created, found, server.RequestNames())
	}
	r.CSR, _ = request(t, alice())
	_, err = c.RequestCertificate(soon(t), r)
	wantError(t, err, "requests something else")
	r.CSR, r.SignerName = again, "example.com/other"
	_, err = c.RequestCertificate(soon(t), r)
	wantError(t, err, "requests something else")
}

func TestRequestRefused(t *testing.T) {
	server, c, _ := start(t)
	csr, _ := request(t, pkix.Name{CommonName: "root", Organization: []string{"system:masters"}})
	_, err := c.RequestCertificate(soon(t), CertificateRequest{CSR: csr, SignerName: signer})
	wantError(t, err, "system:masters group is not allowed")
	if e := new(StatusError); !errors.As(err, &e) || e.Code != 403 || e.Reason != "Forbidden" {
		t.Errorf("got %#v", err)
	}
	before := len(server.Requests())
	_, err = c.RequestCertificate(soon(t), CertificateRequest{CSR: csr, SignerName: signer, Lifetime: 599 * time.Second})
	wantError(t, err, "shorter than")
	_, err = c.RequestCertificate(soon(t), CertificateRequest{CSR: csr})
	wantError(t, err, "no signer")
	if n := len(server.Requests()) - before; n != 0 {
		t.Errorf("%d requests were sent that the server must refuse", n)
	}
}
