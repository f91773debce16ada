package minted_test

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"holdfast/client/broker/minted"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
)

// Certificates for comparing; no test reads their content.
const (
	ca    = "-----BEGIN CERTIFICATE-----\nb25l\n-----END CERTIFICATE-----\n"
	other = "-----BEGIN CERTIFICATE-----\ndHdv\n-----END CERTIFICATE-----\n"
)

// An attacker's kubeconfig may name a good profile and the attacker's server.
func TestCluster(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*brokerwire.Cluster, *profile.Profile)
		denied string
	}{
		"the same":     {func(*brokerwire.Cluster, *profile.Profile) {}, ""},
		"spelled else": {func(c *brokerwire.Cluster, _ *profile.Profile) { c.Server = "HTTPS://API.prod:443/" }, ""},
		"CA twice": {func(c *brokerwire.Cluster, _ *profile.Profile) {
			c.CertificateAuthorityData = []byte("# prod\n" + ca + ca)
		}, ""},
		"same proxy": {func(c *brokerwire.Cluster, p *profile.Profile) {
			c.ProxyURL, p.Cluster.ProxyURL = "http://p", "http://p"
		}, ""},
		"proxy not said": {func(_ *brokerwire.Cluster, p *profile.Profile) { p.Cluster.ProxyURL = "http://p" }, ""},
		"same name": {func(c *brokerwire.Cluster, p *profile.Profile) {
			c.TLSServerName, p.Cluster.TLSServerName = "API", "api"
		}, ""},
		"other server": {func(c *brokerwire.Cluster, _ *profile.Profile) { c.Server = "https://evil" }, "server"},
		"other port":   {func(c *brokerwire.Cluster, _ *profile.Profile) { c.Server = "https://api.prod:8443" }, "server"},
		"plain":        {func(c *brokerwire.Cluster, _ *profile.Profile) { c.Server = "http://api.prod" }, "server"},
		"other path":   {func(c *brokerwire.Cluster, _ *profile.Profile) { c.Server = "https://api.prod/evil" }, "server"},
		"user":         {func(c *brokerwire.Cluster, _ *profile.Profile) { c.Server = "https://api.prod@evil" }, "server"},
		"no server":    {func(c *brokerwire.Cluster, _ *profile.Profile) { c.Server = "" }, "server"},
		"other name":   {func(c *brokerwire.Cluster, _ *profile.Profile) { c.TLSServerName = "evil" }, "tls-server-name"},
		"name missing": {func(_ *brokerwire.Cluster, p *profile.Profile) { p.Cluster.TLSServerName = "api" }, "tls-server-name"},
		"other CA":     {func(c *brokerwire.Cluster, _ *profile.Profile) { c.CertificateAuthorityData = []byte(other) }, "certificate-authority-data"},
		"one more CA":  {func(c *brokerwire.Cluster, _ *profile.Profile) { c.CertificateAuthorityData = []byte(ca + other) }, "certificate-authority-data"},
		"one CA less":  {func(_ *brokerwire.Cluster, p *profile.Profile) { p.Cluster.CertificateAuthorityData = ca + other }, "certificate-authority-data"},
		"no CA":        {func(c *brokerwire.Cluster, _ *profile.Profile) { c.CertificateAuthorityData = nil }, "certificate-authority-data"},
		"no CA at all": {func(c *brokerwire.Cluster, p *profile.Profile) {
			c.CertificateAuthorityData, p.Cluster.CertificateAuthorityData = nil, ""
		}, "certificate-authority-data"},
		"broken CA": {func(c *brokerwire.Cluster, _ *profile.Profile) {
			c.CertificateAuthorityData = []byte(ca + "-----BEGIN CERTIFICATE-----\n?")
		}, "certificate-authority-data"},
		"not verified":    {func(c *brokerwire.Cluster, _ *profile.Profile) { c.InsecureSkipTLSVerify = true }, "insecure-skip-tls-verify"},
		"proxy":           {func(c *brokerwire.Cluster, _ *profile.Profile) { c.ProxyURL = "http://evil" }, "proxy-url"},
		"mode not listed": {func(_ *brokerwire.Cluster, p *profile.Profile) { p.Modes = []string{"proxy"} }, "mode token"},
	} {
		in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
			r := by(1)
			c.change(r.Cluster, r.Profile)
			got, err := m.Credential(context.Background(), r)
			mints, _ := s.Counts()
			if c.denied == "" {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				return
			}
			if e, ok := fault.AsError(err); !ok || e.Kind != fault.Denied || !strings.Contains(e.Message, c.denied) || e.Hint == "" || got.Token != "" || mints != 0 {
				t.Errorf("%s: got %q, %v, %d mints", name, got.Token, err, mints)
			}
		})
	}
}

func TestClusterNotGiven(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, _ *minted.Source) {
		r := by(1)
		ask(t, m, r)
		r.Cluster = nil // and a credential is there
		_, err := m.Credential(context.Background(), r)
		if e, ok := fault.AsError(err); !ok || e.Kind != fault.Denied || !strings.Contains(e.Hint, "provideClusterInfo: true") {
			t.Errorf("got %v", err)
		}
		r.Mode = brokerwire.ModeProxy
		if _, err := m.Credential(context.Background(), r); fault.KindOf(err) != fault.BadRequest {
			t.Errorf("mode proxy: %v", err)
		}
	})
}

func FuzzSameServer(f *testing.F) {
	for _, seed := range [][2]string{{"https://a", "HTTPS://A:443/"}, {"https://a/b", "https://a/b/"}, {"https://[::1]:6443", "https://[::1]:6443"}, {"http://a", "https://a"}, {"https://a%2f", "https://a/"}, {"", ""}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		same := minted.SameServer(a, b)
		if same != minted.SameServer(b, a) {
			t.Errorf("%q and %q differ by their order", a, b)
		}
		if same && (!minted.SameServer(a, a) || !strings.HasPrefix(strings.ToLower(a), "https:")) {
			t.Errorf("%q is no server", a)
		}
	})
}

func FuzzSameCertificates(f *testing.F) {
	for _, seed := range [][2]string{{ca, ca}, {ca + other, other + ca}, {ca, other}, {"", ""}, {ca + "-----BEGIN X", ca}} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if minted.SameCertificates(a, b) != minted.SameCertificates(b, a) {
			t.Errorf("%q and %q differ by their order", a, b)
		}
		if len(a) == 0 && minted.SameCertificates(a, b) {
			t.Errorf("nothing is the same as %q", b)
		}
	})
}

func jwt(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func TestNotBefore(t *testing.T) {
	for token, want := range map[string]time.Time{
		jwt(`{"nbf":1700000000}`): time.Unix(1700000000, 0), jwt(`{}`): {}, jwt(`{"nbf":-1}`): {}, jwt(`{"nbf":1e300}`): {}, "opaque": {}, "a.?.c": {},
	} {
		if got := minted.NotBefore(token); !got.Equal(want) {
			t.Errorf("%s: %s, want %s", token, got, want)
		}
	}
}

func FuzzNotBefore(f *testing.F) {
	for _, seed := range []string{jwt(`{"nbf":1700000000}`), jwt(`{"nbf":1e308}`), "..", "", jwt(`[]`)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if got := minted.NotBefore(token); !got.IsZero() && got.Unix() <= 0 {
			t.Errorf("%q: %s", token, got)
		}
	})
}
