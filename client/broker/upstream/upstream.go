// Package upstream keeps the broker's connections to API servers: TLS connections
// on which the client's handshake was signed by the agent, shared by the requests
// of one uid to one profile.
//
// Start at [Pools.Transport]. A request takes a connection that has room for it,
// or waits for the one handshake in progress, or starts one. The package
// manages connections itself ([net/http.ClientConn]) rather than leaving that to
// an [net/http.Transport], which makes as many handshakes as requests wait: here
// each one costs the device a signature.
//
// A connection belongs to one uid and to the cluster and key of the profile at that
// time, so a profile that changed never uses an old connection. Only the profile's
// own cluster is dialed, whatever a request's URL says, and no setting comes from
// the environment.
package upstream

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"holdfast/client"
	"holdfast/client/broker/ticket"
	"holdfast/client/profile"
	"holdfast/internal/metrics"
)

// Options configures Pools.
type Options struct {
	Agent   *client.Client
	Metrics *metrics.Registry // may be nil
	Log     *slog.Logger      // may be nil

	// Alone reports whether the key of a profile takes a user's touch or confirmation
	// each time: a shared connection would ask once for many requests. Nil: none does.
	Alone func(*profile.Profile) bool
}

// Pools are connections, by uid and profile. They are safe for concurrent use.
type Pools struct {
	agent   *client.Client
	alone   func(*profile.Profile) bool
	log     *slog.Logger
	counts  counts
	limits  limits
	ctx     context.Context // of every handshake
	cancel  context.CancelFunc
	running sync.WaitGroup // handshakes and connections

	mu      sync.Mutex
	closed  bool
	current map[identity]*pool // those that new requests use
	all     map[*pool]struct{} // these, and those that still have connections
}

// New returns pools without connections. Close them.
func New(o Options) *Pools {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = metrics.New()
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Pools{
		agent: o.Agent, alone: o.Alone, log: o.Log, limits: defaultLimits, ctx: ctx, cancel: cancel,
		counts:  newCounts(o.Metrics),
		current: map[identity]*pool{}, all: map[*pool]struct{}{},
	}
}

// Transport returns a transport for the requests of caller to the cluster of p. It
// speaks HTTP/2 where the server does, and makes one handshake for many requests
// unless p says no-pool or the key takes a user each time. Errors are [*Error].
//
// A request goes to the server of the profile whatever host its URL names; path,
// query and headers are the caller's. Bodies pass as they are: no encoding is
// asked for that the request does not ask for. A profile with disable-compression
// removes the request's Accept-Encoding: a client with that setting would not have
// sent it.
//
// A request that failed is sent once more, as [net/http.Transport] does, where its
// body can be read again (GetBody, or none), its connection is shared, and the server
// refused it unprocessed (RFC 9113, section 8.7), or the connection had worked before
// and was lost, and the server cannot have acted on the request or its method may be
// repeated (RFC 9110, section 9.2.2).
//
// The time that an answer may take is limited by the request's context alone.
func (p *Pools) Transport(caller ticket.Process, prof *profile.Profile) http.RoundTripper {
	return &transport{pools: p, caller: caller, id: identify(caller.UID, prof), single: p.eachSigned(prof)}
}

// eachSigned reports whether every request of a profile takes a signature.
func (p *Pools) eachSigned(prof *profile.Profile) bool {
	return prof.Proxy.NoPool || p.alone != nil && p.alone(prof)
}

// Upgrade is Transport for requests that upgrade their connection: HTTP/1.1, a
// connection for each, TLS sessions resumed where the server allows, and the profile
// and its key do not want a signature each time. The body of an answer 101 is the
// connection, an [io.ReadWriteCloser].
func (p *Pools) Upgrade(caller ticket.Process, prof *profile.Profile) http.RoundTripper {
	return &transport{pools: p, caller: caller, id: identify(caller.UID, prof), single: true, upgrade: true, afresh: p.eachSigned(prof)}
}

// Retire lets the connections of a profile end when their requests have ended,
// at the latest when the certificate that signed in on them expires: new requests
// take a fresh handshake. A uid of nil means every uid.
func (p *Pools) Retire(profile string, uid *uint32) {
	for _, each := range p.take(profile, uid, false) {
		each.drain()
	}
}

// Drop cuts the connections of a profile, open streams and upgrades included; of
// all profiles when it is empty.
func (p *Pools) Drop(profile string) {
	for _, each := range p.take(profile, nil, true) {
		each.drop()
	}
}

// Counts returns the open connections of a profile, and how many handshakes the
// agent signed for it since the start.
func (p *Pools) Counts(profile string) (connections, signatures int) {
	return p.counts.of(profile)
}

// Close cuts everything and returns when all connections have ended. Requests fail
// from then on.
func (p *Pools) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.Drop("")
	p.running.Wait()
}
