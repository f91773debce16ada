// Package upstream keeps the broker's connections to API servers: TLS connections
// on which the client's handshake was signed by the agent, shared by the requests
// of one uid to one profile.
//
// Start at [Pools.Transport].
package upstream

import (
	"log/slog"
	"net/http"

	"holdfast/agent/metrics"
	"holdfast/client"
	"holdfast/client/broker/ticket"
	"holdfast/client/profile"
)

// Options is what Pools need.
type Options struct {
	Agent   *client.Client
	Metrics *metrics.Registry
	Log     *slog.Logger
}

// Pools are connections, by uid and profile. They are safe for concurrent use.
type Pools struct{}

// New returns pools without connections. Close them.
func New(o Options) *Pools { panic("not built") }

// Transport returns what sends the requests of caller to the cluster of p. It
// speaks HTTP/2 where the server does, makes one handshake for many requests
// unless p says no-pool or the key wants a person each time, and retries nothing.
// Failures are [*Error].
func (p *Pools) Transport(caller ticket.Process, prof *profile.Profile) http.RoundTripper {
	panic("not built")
}

// Upgrade is Transport for requests that upgrade their connection: HTTP/1.1, a
// connection for each, TLS sessions resumed where the server allows.
func (p *Pools) Upgrade(caller ticket.Process, prof *profile.Profile) http.RoundTripper {
	panic("not built")
}

// Retire lets the connections of a profile end when their requests have ended:
// new requests take a fresh handshake. A uid of nil means every uid.
func (p *Pools) Retire(profile string, uid *uint32) { panic("not built") }

// Drop cuts the connections of a profile, open streams and upgrades included; of
// all profiles when it is empty.
func (p *Pools) Drop(profile string) { panic("not built") }

// Counts returns the open connections of a profile, and how many handshakes the
// agent signed for it since the start.
func (p *Pools) Counts(profile string) (connections, signatures int) { panic("not built") }

// Close cuts everything.
func (p *Pools) Close() { panic("not built") }

// Error says why an API server could not be reached: one fact and one hint. Kind
// is agent, key, tls, network or timeout.
type Error struct {
	Kind    string
	Message string
	Hint    string
	Err     error
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
