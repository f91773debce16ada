package enroll

import (
	"crypto/tls"
	"net/http"
	"sync"
	"time"

	"holdfast/client"
	"holdfast/client/exchange/kubernetes/signin"
)

// keyTransport signs in with a key and the chain that it has.
type keyTransport struct {
	*http.Transport
	mu     sync.Mutex
	failed error // of the key, as the agent gave it; crypto/tls would keep its text alone
}

func newKeyTransport(cluster *signin.Cluster, k *client.Key) (*keyTransport, error) {
	cfg, err := cluster.TLS()
	if err != nil {
		return nil, err
	}
	if err := k.ConfigureClient(cfg); err != nil { // for the versions that the key may sign
		return nil, err
	}
	t := new(keyTransport)
	certificate, err := k.WithObserver(t.note).TLSCertificate()
	if err != nil {
		return nil, err
	}
	cfg.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		all := *r
		all.AcceptableCAs = nil // a server need not name every CA that it takes
		return &certificate, all.SupportsCertificate(&certificate)
	}
	t.Transport, err = cluster.Dial(cfg)
	return t, err
}

// RoundTrip sends r. Where signing failed, it returns the error of the key.
func (t *keyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.Transport.RoundTrip(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil && t.failed != nil {
		err = t.failed
	}
	return response, err
}

// note stores the result of the last signature.
func (t *keyTransport) note(_ time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = err
}
