// Package door accepts a daemon's connections: it listens on Unix sockets,
// identifies each caller before a byte is read, asks the daemon's policy, limits
// the open connections, and hands what passes to the daemon.
//
// Start at [New] and [Door.Serve] for connections, at [Listen] and [Activated] for
// sockets. A socket that the daemon makes has a lock file beside it, so that a
// second daemon fails before it touches the socket. [Door.CheckSockets] listens
// again when a socket was removed or replaced.
//
// The permissions of a socket's directory decide who can replace the socket;
// package guard checks them.
package door

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"holdfast/internal/peer"
)

// A Reason says in one word why a connection was rejected. It is fit for the label
// of a metric.
type Reason string

// The reasons.
const (
	Unidentified Reason = "unidentified" // the caller could not be identified
	Policy       Reason = "policy"       // the policy allows the caller nothing
	Limit        Reason = "limit"        // too many connections are open
)

// Options is what a [Door] is made of. Zero values mean the defaults.
type Options struct {
	PerUID int              // limit of the open connections of one uid; 320
	Total  int              // limit of the open connections of all uids; 4096
	Peers  *peer.Identifier // identifies callers; one of the door's own
	Log    *slog.Logger     // slog.Default()

	// Rejected is called for each connection that was closed unread. For a caller that
	// was not identified, id holds what is known. May be nil.
	Rejected func(id peer.Identity, reason Reason, detail string)

	// Replaced is called for each socket that was removed or replaced. The error
	// is nil when the door listens again. May be nil.
	Replaced func(path string, err error)
}

// Admits reports whether a caller may connect at all, and if not, why.
type Admits func(id peer.Identity) (allowed bool, reason string)

// A Handler serves one connection of the caller p. The door closes both when the
// handler returns, and logs the error.
type Handler func(ctx context.Context, conn *net.UnixConn, p *peer.Peer) error

// Door accepts the connections of a daemon, on any number of sockets. Its methods
// are safe for concurrent use.
type Door struct {
	options     Options
	connections connections

	mu      sync.Mutex
	sockets []*Socket
	closed  bool
	running sync.WaitGroup // connections; incremented with mu held, while the door is open
}

// New makes a door without sockets.
func New(o Options) *Door {
	if o.Peers == nil {
		o.Peers = new(peer.Identifier)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Door{options: o, connections: connections{
		perUID: cmp.Or(o.PerUID, 320), total: cmp.Or(o.Total, 4096), byUID: map[uint32]int{},
	}}
}

// Serve accepts connections on s until s or the door is closed. Each runs on a
// goroutine of its own: the door identifies the caller, asks admits, counts the
// connection and calls handle. A rejected caller sees the connection close.
//
// When ctx ends, Serve closes s, and then ends the context of the connections. The
// order matters: a caller whose connection was closed unread connects once more.
// When no daemon listens then, the caller knows that the daemon stopped and did not
// reject it.
func (d *Door) Serve(ctx context.Context, s *Socket, admits Admits, handle Handler) error {
	if !d.add(s) {
		return s.Close()
	}
	after, end := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		s.Close()
		end()
	})
	for delay := time.Duration(0); ; {
		conn, err := s.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil { // most likely no descriptor is free: connections that close free some
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			d.options.Log.Warn("accept", "error", err, "retry", delay)
			time.Sleep(delay)
			continue
		}
		delay = 0
		if !d.begin() {
			conn.Close()
			return nil
		}
		go func() {
			defer d.running.Done()
			defer conn.Close()
			d.admit(after, conn, admits, handle)
		}()
	}
}

// add makes s one of the door's sockets, unless the door is closed.
func (d *Door) add(s *Socket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.sockets = append(d.sockets, s)
	}
	return !d.closed
}

// begin counts a goroutine for [Door.Wait], unless the door is closed.
func (d *Door) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.running.Add(1)
	}
	return !d.closed
}

// admit rejects the caller of conn, or has the connection served.
func (d *Door) admit(ctx context.Context, conn *net.UnixConn, admits Admits, handle Handler) {
	p, err := d.identify(conn)
	if err != nil {
		refused := new(peer.Refused)
		errors.As(err, &refused)
		d.reject(refused.Identity, Unidentified, err.Error())
		return
	}
	defer p.Close()
	if allowed, reason := admits(p.Identity); !allowed {
		d.reject(p.Identity, Policy, reason)
		return
	}
	if !d.connections.enter(p.UID) {
		d.reject(p.Identity, Limit, "too many connections")
		return
	}
	defer d.connections.leave(p.UID)
	if err := handle(ctx, conn, p); err != nil {
		d.options.Log.Debug("connection", "uid", p.UID, "pid", p.PID, "error", err)
	}
}

// identify asks the kernel for the caller. It does so on a goroutine of its own:
// reading /proc grows the stack, and an idle connection should not keep a large one.
func (d *Door) identify(conn *net.UnixConn) (p *peer.Peer, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p, err = d.options.Peers.FromConn(conn)
	}()
	<-done
	return p, err
}

// reject logs at debug level only: an unidentified caller must not fill the log.
func (d *Door) reject(id peer.Identity, reason Reason, detail string) {
	d.options.Log.Debug("connection rejected", "uid", id.UID, "pid", id.PID, "reason", detail)
	if d.options.Rejected != nil {
		d.options.Rejected(id, reason, detail)
	}
}

// Connections returns how many admitted connections are open.
func (d *Door) Connections() int { return d.connections.number() }

// CheckSockets makes sure that each path still leads to the door's own socket, and
// listens again where one was removed or replaced.
func (d *Door) CheckSockets() {
	d.mu.Lock()
	sockets := d.sockets
	d.mu.Unlock()
	for _, s := range sockets {
		replaced, err := s.Check()
		if !replaced && err == nil {
			continue
		}
		d.options.Log.Error("a socket was replaced", "path", s.Path(), "error", err)
		if d.options.Replaced != nil {
			d.options.Replaced(s.Path(), err)
		}
	}
}

// Close stops listening on every socket. Open connections stay open: they end with
// the context of [Door.Serve], and [Door.Wait] waits for them.
func (d *Door) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, s := range d.sockets { // with mu held, so that no connection is closed unread while its socket listens
		s.Close()
	}
}

// Wait returns when no connection is left. Call it after [Door.Close].
func (d *Door) Wait() { d.running.Wait() }
