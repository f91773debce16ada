package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"holdfast/client/profile"
)

// Direct returns a transport to the cluster of a profile that needs no signature of
// the agent: it signs in with cert, whose key is in memory, or not at all when cert
// is nil. It keeps no connection between requests, and verifies the cluster and
// goes through its proxy as [Pools.Transport] does. Errors of making it are
// [*Error]; those of its requests are net/http's.
func Direct(prof *profile.Profile, cert *tls.Certificate) (*http.Transport, error) {
	t, err := newTarget(prof.Cluster)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: t.roots, ServerName: t.serverName, MinVersion: tls.VersionTLS12}
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	direct := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return t.dial(ctx, address, defaultLimits.dial)
		},
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    defaultLimits.handshake,
		DisableCompression:     true,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeaders,
	}
	if t.proxy != nil {
		direct.Proxy = t.proxyFor
	}
	return direct, nil
}
