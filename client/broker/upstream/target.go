package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"holdfast/client/profile"
)

// target is where to connect to.
type target struct {
	address    string // host:port
	host       string // as the profile has it, for the Host header
	serverName string // that the server's certificate has to name
	roots      *x509.CertPool
	proxy      *url.URL // nil for none
	proxyTLS   *tls.Config
}

func newTarget(c profile.Cluster) (*target, error) {
	bad := func(what string) error {
		return failure(TLS, "holdfast kubeconfig add writes it again", "the profile's %s", what)
	}
	server, err := url.Parse(c.Server)
	if err != nil || server.Scheme != "https" || server.Hostname() == "" {
		return nil, bad(fmt.Sprintf("server %.100q is no https URL", c.Server))
	}
	t := &target{address: withPort(server), host: server.Host, serverName: c.TLSServerName, roots: x509.NewCertPool()}
	if t.serverName == "" {
		t.serverName = server.Hostname()
	}
	if !t.roots.AppendCertsFromPEM([]byte(c.CertificateAuthorityData)) {
		return nil, bad("certificate-authority-data holds no certificate")
	}
	if c.ProxyURL == "" {
		return t, nil
	}
	if t.proxy, err = url.Parse(c.ProxyURL); err != nil || t.proxy.Hostname() == "" {
		return nil, bad("proxy-url is no URL") // which may hold a password, so it is not shown
	}
	return t, t.overTLS([]byte(c.CertificateAuthorityData))
}

// overTLS prepares for a proxy that is itself reached over TLS. Its configuration is
// not the cluster's: it has its own name, its certificate may be from the system's
// roots or the profile's, and the key never signs in to it. net/http would use one
// configuration for both.
func (t *target) overTLS(own []byte) error {
	if t.proxy.Scheme != "https" {
		return nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	roots.AppendCertsFromPEM(own)
	t.proxyTLS = &tls.Config{RootCAs: roots, ServerName: t.proxy.Hostname(), MinVersion: tls.VersionTLS12}
	plain := *t.proxy
	plain.Scheme, plain.Host = "http", withPort(t.proxy)
	t.proxy = &plain
	return nil
}

// withPort returns the URL's host with its port, the scheme's when none is given.
func withPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// proxyFor is http.Transport's Proxy.
func (t *target) proxyFor(*http.Request) (*url.URL, error) { return t.proxy, nil }

// dial connects to the server, or to its proxy.
func (t *target) dial(ctx context.Context, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	d := net.Dialer{KeepAlive: 30 * time.Second}
	raw, err := d.DialContext(ctx, "tcp", address)
	if err != nil || t.proxyTLS == nil {
		return raw, err
	}
	over := tls.Client(raw, t.proxyTLS)
	if err := over.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, &proxyError{err}
	}
	return over, nil
}

// proxyError is a failed handshake with a proxy.
type proxyError struct{ err error }

func (e *proxyError) Error() string { return "TLS with the proxy: " + e.err.Error() }
func (e *proxyError) Unwrap() error { return e.err }

// certificates returns the certificates in PEM text that can be parsed.
func certificates(text string) []*x509.Certificate {
	var found []*x509.Certificate
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return found
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			found = append(found, c)
		}
	}
}
