// Package minted keeps the credentials that the broker has obtained from API
// servers: in memory alone, bounded, one for each caller, profile and mode, made
// once for all who ask at the same time, and refreshed before they end.
//
// Start at [Mint.Credential]. There is no way to put a credential in.
package minted

import (
	"context"
	"log/slog"

	"holdfast/agent/metrics"
	"holdfast/client"
	"holdfast/client/broker/ticket"
	"holdfast/client/broker/upstream"
	"holdfast/client/broker/wire"
	"holdfast/client/profile"
)

// Options is what a Mint needs.
type Options struct {
	Agent   *client.Client
	Pools   *upstream.Pools
	Metrics *metrics.Registry
	Log     *slog.Logger
}

// A Mint obtains and keeps credentials. It is safe for concurrent use.
type Mint struct{}

// New returns a mint without credentials. Close it.
func New(o Options) *Mint { panic("not built") }

// Request asks for a credential. The caller of Credential has asked the policy.
type Request struct {
	Holder       ticket.Process   // who will use it: the plugin's parent
	Profile      *profile.Profile //
	Mode         string           // wire.ModeCertificate or wire.ModeToken
	Cluster      *wire.Cluster    // what the client says of its cluster; has to be the profile's
	Unauthorized bool             // the client says that the cluster refused the last one
}

// Credential returns a credential that is valid now, the same one until its
// renewal is due or the cluster has been seen to refuse it.
func (m *Mint) Credential(ctx context.Context, r Request) (wire.Credential, error) {
	panic("not built")
}

// Forget forgets the credentials of a profile (of all when it is empty), of one
// uid or, when uid is nil, of all.
func (m *Mint) Forget(profile string, uid *uint32) { panic("not built") }

// Count returns how many credentials of a profile are in memory.
func (m *Mint) Count(profile string) int { panic("not built") }

// Close forgets everything and stops the timers.
func (m *Mint) Close() { panic("not built") }
