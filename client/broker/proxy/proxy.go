// Package proxy is the loopback proxy that stock kubectl talks to: it accepts requests
// that carry a ticket on a connection that the ticket's process owns, removes the
// ticket, and forwards them over connections that the agent signed for.
//
// Start at [Proxy.Serve]; admit.go checks requests, and forward.go forwards them. A
// request that is not admitted is answered with a Status object that says why, so that
// kubectl can show it.
//
// It does not protect against a process that has a ticket and lends its connection to
// another process. The API server decides which user may act as another
// (Impersonate-User and its like), and what a request may do.
package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/client/broker/loopback"
	"holdfast/client/broker/ticket"
	"holdfast/client/profile"
	"holdfast/internal/metrics"
)

// Pools are connections to API servers. A [*holdfast/client/broker/upstream.Pools]
// is one, and says what its methods do.
type Pools interface {
	Transport(caller ticket.Process, prof *profile.Profile) http.RoundTripper
	Upgrade(caller ticket.Process, prof *profile.Profile) http.RoundTripper
	Retire(profile string, uid *uint32)
}

// Options configures a Proxy.
type Options struct {
	Certificate tls.Certificate // for *.holdfast.internal and 127.0.0.1, pinned by kubeconfigs
	Tickets     *ticket.Table
	Pools       Pools
	Profile     func(name string) (*profile.Profile, bool) // the profile as it is now

	// At returns the profile that alone is served at an address, and its certificate; ""
	// for an address of all profiles. It may be nil.
	At func(address netip.Addr) (profile string, certificate *tls.Certificate)

	Allowed func(who ticket.Process, profile string) bool // the policy as it is now
	Metrics *metrics.Registry                             // may be nil
	Log     *slog.Logger                                  // may be nil
}

// A Proxy serves any number of listeners.
type Proxy struct {
	options Options
	log     *slog.Logger
	counts  counts
	server  *http.Server
	open    connections
	limit   requestLimit
	retries retries
	bulk    *httputil.ReverseProxy // for answers that end
	stream  *httputil.ReverseProxy // for watches and logs, of which there are many at a time

	ctx     context.Context // of every request
	cut     context.CancelFunc
	ending  context.Context // of watches, and of other answers without an end
	end     context.CancelFunc
	running running
	endless atomic.Int64 // upgraded connections and followed logs that are open
}

// The limits of the resources that a client can use.
const (
	maxHeader     = 64 << 10
	headerTimeout = 10 * time.Second // the handshake's too
	idleTimeout   = 2 * time.Minute
	maxStreams    = 250       // of one HTTP/2 connection, as kube-apiserver's
	window        = 512 << 10 // what one request's body may be ahead of the API server
)

// New returns a proxy that serves nothing yet. Shut it down.
func New(o Options) *Proxy {
	if o.Metrics == nil {
		o.Metrics = metrics.New()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{options: o, log: o.Log, counts: newCounts(o.Metrics)}
	p.ctx, p.cut = context.WithCancel(context.Background())
	p.ending, p.end = context.WithCancel(p.ctx)
	p.open = newConnections()
	p.bulk, p.stream = p.forwarder(&largeBuffers{}), p.forwarder(&smallBuffers{})
	p.server = &http.Server{
		Handler:   p,
		TLSConfig: p.tls(),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReadFrameSize:              64 << 10,
			MaxReceiveBufferPerStream:     window,
			MaxReceiveBufferPerConnection: 1 << 20,
		},
		DisableGeneralOptionsHandler: true, // it would answer without a ticket
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeader,
		BaseContext:                  func(net.Listener) context.Context { return p.ctx },
		ConnContext:                  remember,
		// Failed handshakes and broken connections, which any process can cause.
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	return p
}

// tls accepts any server name. Each request is checked for the profile of that name:
// its answer can say what is wrong, which a failed handshake cannot.
func (p *Proxy) tls() *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		GetCertificate:              p.certificate,
		DynamicRecordSizingDisabled: true, // small records are for slow links
		SessionTicketsDisabled:      true, // each kubectl is another process; and a session is bound to no name
	}
}

// certificate returns the certificate of the address that a client has connected to.
func (p *Proxy) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if local, ok := hello.Conn.LocalAddr().(*net.TCPAddr); ok {
		if _, own := p.at(local.AddrPort().Addr()); own != nil {
			return own, nil
		}
	}
	return &p.options.Certificate, nil
}

func (p *Proxy) at(address netip.Addr) (profile string, certificate *tls.Certificate) {
	if p.options.At == nil {
		return "", nil
	}
	return p.options.At(address)
}

// Serve accepts connections until l is closed or the proxy is shut down, and
// returns nil then. With profile empty the address that the client has connected to
// picks the profile or, at an address of all profiles, the name that it asks for in its
// handshake (SNI, PROFILE.holdfast.internal). Otherwise the listener is that profile's
// own. A listener that other machines can reach is an error.
func (p *Proxy) Serve(l net.Listener, profile string) error {
	if loopback.ReachOf(l) == loopback.Others {
		l.Close()
		return fmt.Errorf("proxy: %v is no loopback address: other machines could connect", l.Addr())
	}
	err := p.server.ServeTLS(&listener{Listener: l, proxy: p, profile: profile}, "", "")
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// The pace of an orderly end.
const (
	endlessPoll   = 20 * time.Millisecond  // between two looks at [Proxy.WaitEndless]'s answers
	goAwayTime    = 20 * time.Millisecond  // for GOAWAY frames to be queued before watches end
	ticketlessEnd = 500 * time.Millisecond // for connections that have shown no ticket
)

// WaitEndless returns when no upgraded connection (exec, attach, port-forward) and no
// followed log is open, or when ctx ends. The proxy serves as before meanwhile: call it
// before [Proxy.Shutdown], which cuts them.
func (p *Proxy) WaitEndless(ctx context.Context) {
	poll := time.NewTicker(endlessPoll)
	defer poll.Stop()
	for p.endless.Load() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
	}
}

// Shutdown closes the listeners, and ends watches as an API server that stops does:
// each answer is complete, so that its client asks again, on another connection. It
// cuts upgraded connections and followed logs, lets other requests finish until ctx
// ends, and cuts what is left.
func (p *Proxy) Shutdown(ctx context.Context) error {
	finished := make(chan error, 1)
	go func() {
		err := p.server.Shutdown(ctx)
		p.running.end()
		finished <- err
	}()
	// A client that learns of the end of its watch before it has the GOAWAY would ask
	// again on this connection.
	defer time.AfterFunc(goAwayTime, p.end).Stop()
	defer time.AfterFunc(ticketlessEnd, p.open.closeTicketless).Stop()
	var err error
	select {
	case err = <-finished:
		p.cut()
	case <-ctx.Done():
		p.cut()
		p.server.Close()
		p.open.close() // an upgraded one may wait for its client when its other end is gone
		err = <-finished
	}
	if err != nil {
		return fmt.Errorf("proxy: shutdown: %w", err)
	}
	return nil
}

// running counts requests, also upgraded ones, which [http.Server] does not track.
type running struct {
	sync.WaitGroup
	mu     sync.Mutex
	ending bool
}

// begin counts a request, unless the proxy ends.
func (r *running) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ending {
		r.Add(1)
	}
	return !r.ending
}

// end rejects further requests, and waits until the last one has ended.
func (r *running) end() {
	r.mu.Lock()
	r.ending = true
	r.mu.Unlock()
	r.Wait()
}
