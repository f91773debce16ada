// Package signin makes transports that sign in to an API server in the ways that
// kubeconfigs know: by bearer token, client certificate, password, or the
// credential that an exec plugin prints. Enrolment uses it to request the first
// certificate of a hardware key, before that key can sign in itself.
//
// Start at [Cluster.Transport], and at [Run] for exec plugins. Credentials
// are only in memory, and no error contains one.
package signin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Cluster is an API server, with the names that kubeconfigs use.
type Cluster struct {
	Server                   string // https://HOST[:PORT][/PATH]
	CertificateAuthorityData []byte // PEM; the machine's roots when empty
	TLSServerName            string // the name in the server's certificate when it is not that of Server
	ProxyURL                 string // http, https or socks5; the environment's when empty
	DisableCompression       bool
}

// Auth is one way to sign in. The zero value signs in anonymously.
type Auth struct {
	Token       string
	Certificate *tls.Certificate
	Username    string // with Password
	Password    string
}

// handshakeTime is the timeout of a handshake, during which the user may have to
// touch a device.
const handshakeTime = 90 * time.Second

// TLS returns the configuration that verifies the server.
func (c *Cluster) TLS() (*tls.Config, error) {
	cfg := &tls.Config{ServerName: c.TLSServerName, MinVersion: tls.VersionTLS12}
	if len(c.CertificateAuthorityData) > 0 {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(c.CertificateAuthorityData) {
			return nil, errors.New("the cluster's certificate authority is not a certificate in PEM")
		}
	}
	return cfg, nil
}

// Dial returns a transport over connections that cfg makes, through the
// cluster's proxy. Close it with CloseIdleConnections.
func (c *Cluster) Dial(cfg *tls.Config) (*http.Transport, error) {
	proxy := http.ProxyFromEnvironment
	if c.ProxyURL != "" {
		u, err := url.Parse(c.ProxyURL)
		if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
			return nil, errors.New("the cluster's proxy is not http, https or socks5://HOST:PORT") // it may hold a password
		}
		proxy = http.ProxyURL(u)
	}
	dialer := &net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		TLSClientConfig: cfg, Proxy: proxy, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: handshakeTime, DisableCompression: c.DisableCompression,
		IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: 256 << 10,
	}, nil
}

// ProxyFor returns the URL of the proxy that the environment names for a server
// (HTTPS_PROXY, NO_PROXY), as profiles take it; it is empty for none, and for one with a
// password, which nobody asked to have written into a file.
func ProxyFor(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", errors.New("the cluster's server is not a URL")
	}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if err != nil {
		return "", errors.New("HTTPS_PROXY is not the URL of a proxy") // it may hold a password
	}
	if proxy == nil || proxy.User != nil {
		return "", nil
	}
	if proxy.Scheme == "socks5h" { // net/http resolves names at the proxy in both cases
		proxy.Scheme = "socks5"
	}
	return proxy.String(), nil
}

// Transport is a way to sign in to one API server.
type Transport struct {
	base   *http.Transport
	host   string
	header string // Authorization; empty for none
}

var _ http.RoundTripper = (*Transport)(nil)

// Transport returns a transport that signs in by a. Close it with
// CloseIdleConnections.
func (c *Cluster) Transport(a Auth) (*Transport, error) {
	server, err := url.Parse(c.Server)
	if err != nil || server.Scheme != "https" || server.Host == "" {
		return nil, errors.New("the cluster's server is not https://HOST[:PORT][/PATH]")
	}
	cfg, err := c.TLS()
	if err != nil {
		return nil, err
	}
	if a.Certificate != nil {
		cfg.Certificates = []tls.Certificate{*a.Certificate}
	}
	header, err := a.header()
	if err != nil {
		return nil, err
	}
	base, err := c.Dial(cfg)
	if err != nil {
		return nil, err
	}
	return &Transport{base: base, host: server.Host, header: header}, nil
}

func (a Auth) header() (string, error) {
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	switch {
	case strings.ContainsFunc(a.Token, odd):
		return "", errors.New("the token has characters that no bearer token has (RFC 6750, section 2.1)")
	case a.Token != "":
		return "Bearer " + a.Token, nil
	case strings.Contains(a.Username, ":"):
		return "", errors.New("the user's name has a colon, which it cannot have with a password (RFC 7617, section 2)")
	case a.Username != "":
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(a.Username+":"+a.Password)), nil
	}
	return "", nil
}

// RoundTrip sends r with the credential, to the cluster's server only.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" || r.URL.Host != t.host {
		return nil, fmt.Errorf("%s is not the cluster's server", r.URL.Host)
	}
	if t.header != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", t.header)
	}
	return t.base.RoundTrip(r)
}

// CloseIdleConnections closes the connections that no request uses.
func (t *Transport) CloseIdleConnections() { t.base.CloseIdleConnections() }

// FromExec returns a way to sign in from an exec plugin, which it runs; see [Run].
func (c *Cluster) FromExec(ctx context.Context, e Exec, s Streams) (Auth, error) {
	credential, err := Run(ctx, e, c, s)
	if err != nil {
		return Auth{}, err
	}
	auth := Auth{Token: credential.Token}
	if credential.ClientCertificateData != "" {
		pair, err := tls.X509KeyPair([]byte(credential.ClientCertificateData), []byte(credential.ClientKeyData))
		if err != nil {
			return Auth{}, fmt.Errorf("exec plugin %s: its certificate and key do not match: %w", e.name(), err)
		}
		auth.Certificate = &pair
	}
	return auth, nil
}
