package broker

import (
	"context"
	"net"

	"holdfast/internal/door"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
)

type peerKey struct{}

// peerOf returns the caller. The door identified it before a byte was read; that
// never changes.
func peerOf(ctx context.Context) *peer.Peer {
	p, _ := ctx.Value(peerKey{}).(*peer.Peer)
	return p
}

// Serve accepts callers on s until the socket is closed. When ctx ends, calls in
// progress finish and idle connections close.
func (b *Broker) Serve(ctx context.Context, s *door.Socket) error {
	admits := func(id peer.Identity) (bool, string) {
		d := b.policy.Load().Admits(id, false)
		return d.Allowed, d.Reason
	}
	return b.door.Serve(ctx, s, admits, func(ctx context.Context, conn *net.UnixConn, p *peer.Peer) error {
		return b.service.ServeConn(context.WithValue(ctx, peerKey{}, p), conn)
	})
}

// newDoor makes the door through which the broker's callers come.
func (b *Broker) newDoor() *door.Door {
	return door.New(door.Options{
		PerUID: b.Limits.ConnectionsPerUID, Total: b.Limits.Connections, Log: b.Log,
		Rejected: func(_ peer.Identity, reason door.Reason, _ string) { b.counts.refused.Add(1, string(reason)) },
	})
}

// CheckSockets makes sure that the broker's socket is still its own, and listens
// again when it was removed or replaced.
func (b *Broker) CheckSockets() { b.door.CheckSockets() }

// decide asks the policy.
func (b *Broker) decide(id peer.Identity, op policy.Operation, profile string) bool {
	return b.policy.Load().Decide(policy.Query{Peer: id, Operation: op, Profile: profile}).Allowed
}

// operation returns the policy's operation for a credential of that mode. For a mode
// that does not exist, it returns one that no rule allows.
func operation(mode string) policy.Operation {
	for _, op := range []policy.Operation{policy.Proxy, policy.Certificate, policy.Token} {
		if string(op) == mode {
			return op
		}
	}
	return ""
}

// mayUse reports whether the policy lets the caller have a profile's credential in
// at least one mode.
func (b *Broker) mayUse(id peer.Identity, profile string) bool {
	return b.decide(id, policy.Proxy, profile) || b.decide(id, policy.Certificate, profile) || b.decide(id, policy.Token, profile)
}

// privileged reports whether the caller administers the broker: root does, and the
// broker's own uid.
func (b *Broker) privileged(id peer.Identity) bool { return id.UID == 0 || id.UID == b.uid }
