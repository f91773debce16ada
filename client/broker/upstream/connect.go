package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"time"

	"holdfast/client"
	"holdfast/client/broker/ticket"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// agentTimeout is how long the agent may take to describe a key, which needs no
// device.
const agentTimeout = 10 * time.Second

// connected is the result of a handshake.
type connected struct {
	conn *conn
	err  error
}

// wanted is the purpose of a connection.
type wanted struct {
	shared  bool // for many requests; one that is not is reserved
	upgrade bool // for a request that upgrades it
	afresh  bool // the key has to sign for it: no session is resumed
}

// connect makes one connection: asks the agent for the key that signs in now,
// dials, and shakes hands.
func (p *pool) connect(ctx context.Context, caller ticket.Process, w wanted) connected {
	ctx = client.OnBehalfOf(ctx, agentwire.Reported{UID: caller.UID, PID: caller.PID, Start: caller.Start, Unit: caller.Unit})
	h := &handshake{pool: p, conn: &conn{pool: p, shared: w.shared}, wanted: w}
	h.conn.first.done = make(chan struct{})
	begun := time.Now()
	err := h.run(ctx)
	if err == nil {
		err = h.conn.start()
	}
	if p.ctx.Err() != nil {
		err = errRetired // the pool was dropped, which is the cause of any other error
	}
	p.pools.counts.handshake(p.id.profile, h.outcome(err), time.Since(begun))
	if err != nil {
		return connected{err: err}
	}
	return connected{conn: h.conn}
}

// handshake is one connection in the making.
type handshake struct {
	wanted
	pool *pool
	conn *conn
	key  *client.Key
	cert tls.Certificate

	resumed bool
	signErr error // why the agent did not sign
}

func (h *handshake) run(ctx context.Context) error {
	if err := h.prepare(ctx); err != nil {
		return err
	}
	trace := &httptrace.ClientTrace{TLSHandshakeDone: func(s tls.ConnectionState, err error) {
		h.resumed = s.DidResume
		h.conn.http1 = s.NegotiatedProtocol != "h2"
		if err == nil {
			h.conn.raw.handshakeDone()
		}
	}}
	var err error
	h.conn.http, err = h.transport().NewClientConn(httptrace.WithClientTrace(ctx, trace), "https", h.pool.target.address)
	if err != nil && h.signErr != nil {
		return h.signErr
	}
	return err
}

// prepare asks the agent for the current key of the set, and its certificate.
func (h *handshake) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	var err error
	if h.key, err = h.pool.pools.agent.Current(ctx, h.pool.id.key); err != nil {
		return err
	}
	if h.cert, err = h.key.TLSCertificate(); err != nil {
		return err
	}
	h.conn.expires = h.cert.Leaf.NotAfter
	return nil
}

// timeout is how long the handshake may take: longer when a user may have to type a
// PIN, touch the device, or confirm.
func (h *handshake) timeout() time.Duration {
	k := h.key.Info()
	touch := k.Place != nil && k.Place.TouchPolicy != string(keys.PolicyNever)
	if k.PIN || touch || k.Confirm != nil {
		return h.pool.pools.limits.user
	}
	return h.pool.pools.limits.handshake
}

// The memory that a server can make the broker use for one request: an answer's
// headers, and the part of its body that the client has not read yet. The usual 4 MiB
// of a body would be half a gigabyte for a hundred clients that were stopped.
const (
	maxHeaders = 256 << 10
	maxUnread  = 512 << 10
)

// transport returns a transport for this one connection.
func (h *handshake) transport() *http.Transport {
	t := &http.Transport{
		DialContext:            h.dial,
		TLSClientConfig:        h.config(),
		TLSHandshakeTimeout:    h.timeout(),
		DisableCompression:     true,
		ForceAttemptHTTP2:      !h.upgrade,
		MaxResponseHeaderBytes: maxHeaders,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, MaxReceiveBufferPerStream: maxUnread,
		},
	}
	if h.pool.target.proxy != nil {
		t.Proxy = h.pool.target.proxyFor
	}
	if h.upgrade {
		t.Protocols = new(http.Protocols)
		t.Protocols.SetHTTP1(true)
	}
	return t
}

func (h *handshake) dial(ctx context.Context, _, address string) (net.Conn, error) {
	c, err := h.pool.target.dial(ctx, address, h.pool.pools.limits.dial)
	if err != nil {
		return nil, err
	}
	h.conn.raw = newRawConn(c)
	return h.conn.raw, nil
}

func (h *handshake) config() *tls.Config {
	c := &tls.Config{
		RootCAs:              h.pool.target.roots,
		ServerName:           h.pool.target.serverName,
		MinVersion:           tls.VersionTLS13,
		GetClientCertificate: h.certificate,
	}
	if h.key.Info().TLS12 {
		c.MinVersion = tls.VersionTLS12
	}
	if h.upgrade && !h.afresh {
		c.ClientSessionCache = h.pool.sessionCache(h.cert.Leaf.Raw)
	}
	return c
}

// certificate is tls.Config's GetClientCertificate.
func (h *handshake) certificate(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if !slices.ContainsFunc(h.cert.SupportedSignatureAlgorithms, func(s tls.SignatureScheme) bool { return slices.Contains(r.SignatureSchemes, s) }) {
		return nil, &fault.Error{
			Kind:    fault.Unsupported,
			Message: fmt.Sprintf("the server does not take %s signatures, the only kind that key %s makes", h.key.Info().Scheme, h.key.Info().Name),
			Hint:    "use a key with another algorithm",
		}
	}
	cert := h.cert
	cert.PrivateKey = h.key.WithTimeout(h.timeout()).WithContext(r.Context()).WithObserver(h.signed)
	return &cert, nil
}

func (h *handshake) signed(_ time.Duration, err error) {
	if h.signErr = err; err == nil {
		h.pool.pools.counts.change(h.pool.id.profile, 0, 1)
	}
}

// outcome is the handshake's label in the metrics.
func (h *handshake) outcome(err error) string {
	switch {
	case err != nil:
		return string(h.pool.explain(err).Class)
	case h.resumed:
		return "resumed"
	}
	return "ok"
}

// presented returns the names in a certificate.
func presented(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 && c.Subject.CommonName != "" {
		names = append(names, "CN "+c.Subject.CommonName)
	}
	return names
}
