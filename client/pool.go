package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"holdfast/internal/varlink"
)

const (
	// maxConnections bounds the calls of one client that are under way. The
	// device does one thing at a time; more connections would only wait there.
	maxConnections = 32
	// idleTime is how long a connection is kept: less than the 30 s after which
	// the agent closes it.
	idleTime = 25 * time.Second
)

// errClosed is the error of calls on a closed client.
var errClosed = errors.New("the client is closed")

// pool keeps connections between calls, since one carries one call at a time.
type pool struct {
	dial  func(context.Context) (*varlink.Conn, error)
	slots chan struct{} // holds one element for each connection in use

	mu     sync.Mutex
	idle   []idleConn // the one used last is last
	closed bool
}

type idleConn struct {
	conn  *varlink.Conn
	since time.Time
}

func newPool(dial func(context.Context) (*varlink.Conn, error)) *pool {
	return &pool{dial: dial, slots: make(chan struct{}, maxConnections)}
}

// get returns a connection, which the caller gives back with put. A fresh one
// has never been used.
func (p *pool) get(ctx context.Context, fresh bool) (*varlink.Conn, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	conn, err := p.take(fresh)
	if conn == nil && err == nil {
		conn, err = p.dial(ctx)
	}
	if err != nil {
		<-p.slots
		return nil, err
	}
	return conn, nil
}

// take returns the connection used last, or nil when a new one is needed.
func (p *pool) take(fresh bool) (*varlink.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	p.prune(time.Now().Add(-idleTime))
	if fresh || len(p.idle) == 0 {
		return nil, nil
	}
	last := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	return last.conn, nil
}

// put gives a connection back; one that is not usable any more is closed.
func (p *pool) put(conn *varlink.Conn, usable bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if usable && !p.closed {
		p.idle = append(p.idle, idleConn{conn, time.Now()})
	} else {
		conn.Close()
	}
	<-p.slots
}

// prune closes the connections that have been idle since before limit.
func (p *pool) prune(limit time.Time) {
	old := 0
	for old < len(p.idle) && p.idle[old].since.Before(limit) {
		p.idle[old].conn.Close()
		old++
	}
	p.idle = p.idle[old:]
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, i := range p.idle {
		i.conn.Close()
	}
	p.idle = nil
}
