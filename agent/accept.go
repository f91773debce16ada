package agent

import (
	"context"
	"net"
	"strconv"
	"time"

	"holdfast/agent/audit"
	"holdfast/internal/door"
	"holdfast/internal/peer"
)

// connection is what a request knows of the connection that it came over. The door
// identified the caller before a byte was read; that never changes.
type connection struct {
	peer  *peer.Peer
	admin bool // it came over the admin socket
}

type connectionKey struct{}

func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}

// Serve accepts callers on s until the socket is closed. When ctx ends, the socket
// closes, calls in progress finish and idle connections close.
func (a *Agent) Serve(ctx context.Context, s *door.Socket) error { return a.serve(ctx, s, false) }

// ServeAdmin is Serve for the socket over which the machine's keys are managed:
// policy tells the two apart.
func (a *Agent) ServeAdmin(ctx context.Context, s *door.Socket) error { return a.serve(ctx, s, true) }

func (a *Agent) serve(ctx context.Context, s *door.Socket, admin bool) error {
	admits := func(id peer.Identity) (bool, string) {
		d := a.policy.Load().Admits(id, admin)
		return d.Allowed, d.Reason
	}
	return a.door.Serve(ctx, s, admits, func(ctx context.Context, conn *net.UnixConn, p *peer.Peer) error {
		return a.service.ServeConn(context.WithValue(ctx, connectionKey{}, &connection{peer: p, admin: admin}), conn)
	})
}

// newDoor makes the door through which the agent's callers come.
func (a *Agent) newDoor() *door.Door {
	return door.New(door.Options{
		PerUID: a.Limits.ConnectionsPerUID, Total: a.Limits.Connections,
		Peers: &a.peers, Rejected: a.connectionRejected, Replaced: a.socketReplaced, Log: a.Log,
	})
}

// CheckSockets makes sure that the agent's sockets are still its own, and listens
// again where one was removed or replaced.
func (a *Agent) CheckSockets() { a.door.CheckSockets() }

// kindSocket is an audit record about a socket that was removed or replaced.
const kindSocket audit.Kind = "socket-replaced"

func (a *Agent) socketReplaced(path string, err error) {
	a.record(audit.Record{Kind: kindSocket, Detail: map[string]string{"path": path, "listening": strconv.FormatBool(err == nil)}})
}

// connectionRejected counts and records a connection that was closed unread. The
// metric has one word for the reason, the audit log all of it.
func (a *Agent) connectionRejected(id peer.Identity, reason door.Reason, detail string) {
	a.counts.refused.Add(1, string(reason))
	before, record := a.rates.rejectedConnections.count(id.UID, 1, time.Now())
	if !record {
		return
	}
	a.record(audit.Record{
		Kind: audit.KindDecision, Caller: callerRecord(id), Operation: "connect", Decision: deny,
		Detail: withUnrecorded(map[string]string{"reason": detail}, before),
	})
}

// record writes a record that no reply depends on, and logs a failure to do so.
func (a *Agent) record(r audit.Record) {
	if err := a.Audit.Append(r); err != nil {
		a.Log.Error("audit", "error", err)
	}
}
