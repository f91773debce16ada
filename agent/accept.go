package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"holdfast/agent/audit"
	"holdfast/internal/door"
	"holdfast/internal/peer"
)

// connection is what a request knows of the connection that it came over. Who
// the caller is was settled before a byte was read and never changes.
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
	if !a.adopt(s) {
		return s.Close()
	}
	handle := func(ctx context.Context, conn *net.UnixConn) { a.accept(ctx, conn, admin) }
	return s.Serve(ctx, &a.open, handle, func(err error, retry time.Duration) { a.Log.Warn("accept", "error", err, "retry", retry) })
}

// adopt makes s one of the agent's sockets, unless the agent has been shut down.
func (a *Agent) adopt(s *door.Socket) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.stopped {
		a.listeners = append(a.listeners, s)
	}
	return !a.stopped
}

// CheckSockets makes sure that the agent's sockets are still its own, and listens
// anew where somebody removed or replaced one.
func (a *Agent) CheckSockets() {
	for _, s := range a.listenersNow() {
		replaced, err := s.Check()
		if !replaced && err == nil {
			continue
		}
		a.Log.Error("somebody replaced a socket", "path", s.Path(), "error", err)
		r := audit.Record{Kind: kindSocket, Detail: map[string]string{"path": s.Path(), "listening": fmt.Sprint(err == nil)}}
		if err := a.Audit.Append(r); err != nil {
			a.Log.Error("audit", "error", err)
		}
	}
}

// kindSocket is an audit record about a socket that was not the agent's any more.
const kindSocket audit.Kind = "socket-replaced"

func (a *Agent) listenersNow() []*door.Socket {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.listeners
}

// accept decides who is calling and whether policy could ever allow them
// anything, and only then reads from the connection. A caller who is refused
// here sees the connection close.
func (a *Agent) accept(ctx context.Context, conn *net.UnixConn, admin bool) {
	p, err := a.identify(conn)
	if err != nil {
		refused := new(peer.Refused)
		errors.As(err, &refused)
		a.refuse(refused.Identity, "unidentified", err.Error())
		return
	}
	defer p.Close()
	if d := a.policy.Load().Admits(p.Identity, admin); !d.Allowed {
		a.refuse(p.Identity, "policy", d.Reason)
		return
	}
	if !a.enter(p.UID) {
		a.refuse(p.Identity, "limit", "too many connections")
		return
	}
	defer a.leave(p.UID)
	ctx = context.WithValue(ctx, connectionKey{}, &connection{peer: p, admin: admin})
	if err := a.service.ServeConn(ctx, conn); err != nil {
		a.Log.Debug("connection", "uid", p.UID, "pid", p.PID, "error", err)
	}
}

// identify asks the kernel who is calling. It does so on a goroutine of its own:
// reading /proc takes a stack that an idle connection should not keep.
func (a *Agent) identify(conn *net.UnixConn) (p *peer.Peer, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p, err = a.peers.FromConn(conn)
	}()
	<-done
	return p, err
}

// enter counts a connection of uid, or reports that there are too many, of this
// uid or of all.
func (a *Agent) enter(uid uint32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.perUID[uid] >= a.Limits.ConnectionsPerPeer || a.total >= a.Limits.Connections {
		return false
	}
	a.perUID[uid]++
	a.total++
	return true
}

func (a *Agent) leave(uid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.total--
	if a.perUID[uid]--; a.perUID[uid] == 0 {
		delete(a.perUID, uid)
	}
}

// refuse records that a connection was closed unread. The metrics have a word for
// the reason, the audit log all of it.
func (a *Agent) refuse(id peer.Identity, word, reason string) {
	a.counts.refused.Add(1, word)
	before, record := a.rates.rejectedConnections.count(id.UID, 1, time.Now())
	if !record {
		return
	}
	r := audit.Record{
		Kind: audit.KindDecision, Caller: callerRecord(id), Operation: "connect", Decision: deny,
		Detail: withUnrecorded(map[string]string{"reason": reason}, before),
	}
	if err := a.Audit.Append(r); err != nil {
		a.Log.Error("audit", "error", err)
	}
}
