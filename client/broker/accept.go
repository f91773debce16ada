package broker

import (
	"context"
	"errors"
	"net"
	"time"

	"holdfast/internal/door"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
)

type peerKey struct{}

// peerOf is who makes the call: settled before a byte was read, and never changed.
func peerOf(ctx context.Context) *peer.Peer {
	p, _ := ctx.Value(peerKey{}).(*peer.Peer)
	return p
}

// Serve accepts callers on s until the socket is closed. When ctx ends, calls in
// progress finish and idle connections close.
func (b *Broker) Serve(ctx context.Context, s *door.Socket) error {
	if !b.adopt(s) {
		return s.Close()
	}
	return s.Serve(ctx, &b.open, b.accept, func(err error, retry time.Duration) { b.Log.Warn("accept", "error", err, "retry", retry) })
}

// adopt makes s one of the broker's sockets, unless the broker has been shut down.
func (b *Broker) adopt(s *door.Socket) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stopped {
		b.listeners = append(b.listeners, s)
	}
	return !b.stopped
}

func (b *Broker) listenersNow() []*door.Socket {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.listeners
}

// CheckSockets makes sure that the broker's socket is still its own, and listens
// anew when somebody removed or replaced it.
func (b *Broker) CheckSockets() {
	for _, s := range b.listenersNow() {
		if replaced, err := s.Check(); replaced || err != nil {
			b.Log.Error("somebody replaced a socket", "path", s.Path(), "error", err)
		}
	}
}

// accept decides who is calling and whether policy could ever allow them
// anything, and only then reads from the connection. A caller who is refused here
// sees the connection close.
func (b *Broker) accept(ctx context.Context, conn *net.UnixConn) {
	p, err := b.peers.FromConn(conn)
	if err != nil {
		refused := new(peer.Refused)
		errors.As(err, &refused)
		b.refuse(refused.Identity, "unknown", err.Error())
		return
	}
	defer p.Close()
	if d := b.policy.Load().Admits(p.Identity, false); !d.Allowed {
		b.refuse(p.Identity, "policy", d.Reason)
		return
	}
	if !b.enter(p.UID) {
		b.refuse(p.Identity, "crowded", "too many connections")
		return
	}
	defer b.leave(p.UID)
	if err := b.service.ServeConn(context.WithValue(ctx, peerKey{}, p), conn); err != nil {
		b.Log.Debug("connection", "uid", p.UID, "pid", p.PID, "error", err)
	}
}

// enter counts a connection of uid, or reports that there are too many, of this
// uid or of all.
func (b *Broker) enter(uid uint32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.perUID[uid] >= b.Limits.ConnectionsPerUID || b.total >= b.Limits.Connections {
		return false
	}
	b.perUID[uid]++
	b.total++
	return true
}

func (b *Broker) leave(uid uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total--
	if b.perUID[uid]--; b.perUID[uid] == 0 {
		delete(b.perUID, uid)
	}
}

// refuse counts a connection that was closed unread. The log has it only when it
// is told to have everything: strangers must not be able to fill it.
func (b *Broker) refuse(id peer.Identity, why, reason string) {
	b.counts.refused.Add(1, why)
	b.Log.Debug("refused", "uid", id.UID, "pid", id.PID, "reason", reason)
}

// decide asks the policy.
func (b *Broker) decide(id peer.Identity, op policy.Operation, profile string) bool {
	return b.policy.Load().Decide(policy.Query{Peer: id, Operation: op, Profile: profile}).Allowed
}

// operation is what the policy calls asking for a mode's credential. A mode that
// does not exist is an operation that nobody may do.
func operation(mode string) policy.Operation {
	for _, op := range []policy.Operation{policy.Proxy, policy.Certificate, policy.Token} {
		if string(op) == mode {
			return op
		}
	}
	return ""
}

// mayUse reports whether the policy lets somebody have a profile's credential in
// any mode.
func (b *Broker) mayUse(id peer.Identity, profile string) bool {
	return b.decide(id, policy.Proxy, profile) || b.decide(id, policy.Certificate, profile) || b.decide(id, policy.Token, profile)
}

// privileged reports whether somebody administers the broker: root, or the
// broker's own uid.
func (b *Broker) privileged(id peer.Identity) bool { return id.UID == 0 || id.UID == b.uid }
