package upstream

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"slices"
	"sync"
	"time"

	"holdfast/client/broker/ticket"
)

// errRetired is for requests that wait in a pool that takes no more requests: they go
// to the next pool.
var errRetired = errors.New("the pool was retired")

// pool is the connections of one identity.
//
// The lock is never held while a connection is asked for anything that can call
// back ([conn.changed]).
type pool struct {
	pools  *Pools
	id     identity
	target *target
	made   time.Time
	ctx    context.Context // of its handshakes; ends when it is dropped
	cancel context.CancelFunc

	mu       sync.Mutex
	used     time.Time // guarded by Pools.mu
	conns    map[*conn]struct{}
	dials    []*dial // handshakes in progress
	http1    bool    // the server takes one request at a time on a connection
	draining bool
	changed  chan struct{} // closed and replaced when a waiting request should look again

	sessions   tls.ClientSessionCache // of upgrades
	sessionsOf [sha256.Size]byte      // the certificate that they were made with
}

// dial is a handshake in progress, which any number of requests may wait for.
type dial struct {
	done chan struct{}
	err  error // set before done is closed
}

func newPool(p *Pools, id identity) (*pool, error) {
	t, err := newTarget(id.cluster)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(p.ctx)
	return &pool{pools: p, id: id, target: t, ctx: ctx, cancel: cancel, conns: map[*conn]struct{}{}, changed: make(chan struct{})}, nil
}

// acquire returns a connection with room for one request, reserved. It makes at
// most one handshake at a time, so that any number of requests cost one signature;
// with a server that speaks HTTP/1.1 only, a few. The error is errRetired in a pool
// that takes no more requests.
func (p *pool) acquire(ctx context.Context, caller ticket.Process) (*conn, error) {
	var d *dial // the one that this request waits for
	for {
		usable, changed, err := p.usable()
		if err != nil {
			return nil, err
		}
		c, first := choose(usable)
		if c != nil {
			return c, nil
		}
		if first != nil {
			if err := first.wait(ctx, changed); err != nil {
				return nil, err
			}
			continue
		}
		if d == nil {
			if d, err = p.dial(caller, changed); err != nil {
				return nil, err
			}
			if d == nil {
				continue
			}
		}
		select {
		case <-d.done:
			if d.err != nil {
				return nil, d.err
			}
			d = nil // other requests may have taken its connection
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// choose reserves room on a connection. When there is none, it returns a connection
// whose first request is in progress, if there is one.
func choose(usable []*conn) (reserved, first *conn) {
	for _, c := range usable {
		pending := !c.http1 && !c.draining.Load() && c.first.pending() // asked first: it may end meanwhile
		switch {
		case c.reserve():
			return c, nil
		case pending:
			first = c
		}
	}
	return nil, first
}

// usable returns the connections that take requests, and a channel that is closed at
// the next change.
func (p *pool) usable() ([]*conn, chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		return nil, nil, errRetired
	}
	now := time.Now().Round(0)
	var list []*conn
	for c := range p.conns {
		if c.shared && now.Before(c.expires) {
			list = append(list, c)
		}
	}
	return list, p.changed, nil
}

// dial joins a handshake in progress, or starts one. It does neither when the pool has
// changed since the caller looked: the connection may be there by now.
func (p *pool) dial(caller ticket.Process, seen chan struct{}) (*dial, error) {
	d, joined, err := p.join(seen)
	if d == nil || joined || err != nil {
		return d, err
	}
	if !p.pools.begin(func() { p.finish(d, p.connect(p.ctx, caller, wanted{shared: true})) }) {
		p.finish(d, connected{err: errRetired})
	}
	return d, nil
}

// join returns a handshake in progress and true, or one to start.
func (p *pool) join(seen chan struct{}) (*dial, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed != seen {
		return nil, false, nil
	}
	allowed := 1
	if p.http1 {
		allowed = p.pools.limits.http1Dials
	}
	if n := len(p.dials); n >= allowed {
		return p.dials[n-1], true, nil
	}
	if err := p.full(); err != nil {
		return nil, false, err
	}
	d := &dial{done: make(chan struct{})}
	p.dials = append(p.dials, d)
	return d, false, nil
}

// full returns an error when the pool has its maximum of connections. The lock is held.
func (p *pool) full() error {
	if len(p.conns) < p.pools.limits.connections {
		return nil
	}
	return failure(Network, "end some watches, port-forwards or commands that still run",
		"too many connections to %s are open (%d)", p.target.address, len(p.conns))
}

// finish ends a dial, for all requests that wait for it.
func (p *pool) finish(d *dial, r connected) {
	defer p.leave()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dials = slices.DeleteFunc(p.dials, func(each *dial) bool { return each == d })
	if r.err == nil {
		p.http1 = r.conn.http1
	}
	d.err = r.err
	close(d.done)
	p.wake()
}

// wake makes waiting requests look again. The lock is held.
func (p *pool) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// add adds a connection whose handshake is done. The error is errRetired in a pool
// that was dropped meanwhile.
func (p *pool) add(c *conn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return errRetired
	}
	c.draining.Store(p.draining)
	p.conns[c] = struct{}{}
	return nil
}

// remove removes a closed connection.
func (p *pool) remove(c *conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.wake()
	p.mu.Unlock()
	p.leave()
}

// leave removes the pool when it has no connection and no handshake left.
func (p *pool) leave() {
	p.mu.Lock()
	empty := p.draining && len(p.conns) == 0 && len(p.dials) == 0
	p.mu.Unlock()
	if empty {
		p.pools.forget(p)
	}
}
