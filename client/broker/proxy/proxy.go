// Package proxy is the loopback proxy that stock kubectl talks to: it takes
// requests that carry a ticket on a connection that the ticket's process owns,
// takes the ticket off, and sends them on over connections that the agent signed
// for.
//
// Start at [Proxy.Serve].
package proxy

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"

	"holdfast/agent/metrics"
	"holdfast/client/broker/ticket"
	"holdfast/client/broker/upstream"
	"holdfast/client/profile"
)

// Options is what a Proxy needs.
type Options struct {
	Certificate tls.Certificate // for *.holdfast.internal and 127.0.0.1, pinned by kubeconfigs
	Tickets     *ticket.Table
	Pools       *upstream.Pools
	Profile     func(name string) (*profile.Profile, bool)    // the profile as it is now
	Allowed     func(who ticket.Process, profile string) bool // the policy as it is now
	Metrics     *metrics.Registry
	Log         *slog.Logger
}

// A Proxy serves any number of listeners.
type Proxy struct{}

// New returns a proxy that serves nothing yet.
func New(o Options) *Proxy { panic("not built") }

// Serve accepts connections until l is closed or the proxy is shut down. With
// profile empty the name that the client asks for in its handshake (SNI) picks
// the profile, otherwise the listener is that profile's own.
func (p *Proxy) Serve(l net.Listener, profile string) error { panic("not built") }

// Shutdown closes the listeners, lets requests finish until ctx ends, and cuts
// what is left, upgraded connections too.
func (p *Proxy) Shutdown(ctx context.Context) error { panic("not built") }
