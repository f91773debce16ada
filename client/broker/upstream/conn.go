package upstream

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// conn is one connection to an API server.
type conn struct {
	pool    *pool
	raw     *rawConn
	http    *http.ClientConn
	http1   bool
	shared  bool // for many requests; otherwise it closes after one
	made    time.Time
	expires time.Time // when the client's certificate does

	draining atomic.Bool
	first    verdict

	mu      sync.Mutex // held to reserve, and to close what is idle: one or the other
	ended   bool
	idle    *time.Timer
	expired *time.Timer
}

// verdict is the result of the first request of a connection. With TLS 1.3 a server
// checks the client's certificate after the client has finished the handshake, so the
// first request meets its rejection. The other requests wait for the result and share
// it.
//
// They wait also because a server announces late how many requests it takes at a time
// (RFC 9113, section 6.5.2). net/http assumes 100 until then, and when the limit turns
// out to be lower than the number of reservations, it waits for ever.
type verdict struct {
	once sync.Once
	done chan struct{} // closed when all requests may use the connection, or it is gone
	err  error         // set before done is closed: why it is gone
}

func (v *verdict) set(err error) {
	v.once.Do(func() {
		v.err = err
		close(v.done)
	})
}

// pending reports whether the other requests still wait for the first one.
func (v *verdict) pending() bool {
	select {
	case <-v.done:
		return false
	default:
		return true
	}
}

// settingsWait is how long after the server's first bytes all requests may use a
// connection whose first request has no answer yet: a server sends its limits at once.
const settingsWait = 500 * time.Millisecond

// start begins to use the connection, whose handshake is done. A connection that is
// not shared is reserved for its one request.
func (c *conn) start() error {
	if !c.pool.pools.enter() {
		c.raw.Close()
		return errRetired
	}
	c.made = time.Now()
	c.idle = time.AfterFunc(time.Hour, c.closeIdle)
	c.expired = time.AfterFunc(time.Until(c.expires), c.cut)
	c.raw.closed = c.closed
	c.raw.firstRead = func() { time.AfterFunc(settingsWait, func() { c.first.set(nil) }) }
	time.AfterFunc(time.Second, c.raw.listen) // without a request, its end is to be noticed too
	c.pool.pools.counts.change(c.pool.id.profile, 1, 0)
	err := c.pool.add(c)
	if err == nil && !c.shared {
		err = c.http.Reserve()
	}
	if err != nil {
		c.cut()
		return err
	}
	c.http.SetStateHook(func(*http.ClientConn) { c.changed() })
	c.settle()
	return nil
}

// closed is called once, when the connection is closed. net/http may call it with its
// locks held: hence the goroutine.
func (c *conn) closed() {
	c.idle.Stop()
	c.expired.Stop()
	go func() {
		defer c.pool.pools.running.Done()
		c.first.set(nil)
		c.pool.pools.counts.change(c.pool.id.profile, -1, 0)
		c.pool.remove(c)
	}()
}

// reserve takes room for one request, if there is any.
func (c *conn) reserve() bool {
	if c.draining.Load() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || !c.http1 && c.first.pending() && c.http.InFlight() > 0 {
		return false
	}
	return c.http.Reserve() == nil
}

// wait waits until all requests may use the connection, or it is gone, or the pool has
// changed, as when the first request was canceled. It returns the server's rejection.
func (c *conn) wait(ctx context.Context, changed chan struct{}) error {
	select {
	case <-c.first.done:
		return c.first.err
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// send sends a request for which room was reserved.
func (c *conn) send(r *http.Request) (*http.Response, error) {
	if !c.raw.answered.Load() {
		trace := &httptrace.ClientTrace{WroteHeaders: c.raw.listen}
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), trace))
		defer c.raw.listen()
	}
	answer, err := c.http.RoundTrip(r)
	if err == nil {
		c.raw.answered.Store(true)
		c.first.set(nil)
	} else if r.Context().Err() == nil && !c.raw.answered.Load() {
		c.first.set(&refusedError{err})
	}
	return answer, err
}

// busy reports whether a request is in progress, an upgraded one included.
func (c *conn) busy() bool {
	return c.http.InFlight() > 0 || c.http.Err() != nil // gone for HTTP and not closed: upgraded
}

// changed is called when there is more room, a request has ended, or the
// connection is gone for HTTP. It may be called from inside of reserve.
func (c *conn) changed() {
	c.settle()
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.pool.wake()
}

// settle makes a connection without requests end: after the idle time, or now.
func (c *conn) settle() {
	if c.draining.Load() || !c.shared {
		c.idle.Reset(0)
		return
	}
	c.idle.Reset(c.pool.id.idle)
}

// closeIdle closes the connection unless a request is in progress; the end of that
// request settles it again.
func (c *conn) closeIdle() {
	c.mu.Lock()
	c.ended = c.ended || !c.busy()
	ended := c.ended
	c.mu.Unlock()
	if ended {
		c.cut()
	}
}

// cut closes the connection at once, with all its requests.
func (c *conn) cut() {
	c.raw.Close() // first: a GOAWAY could block on a network that is gone
	_ = c.http.Close()
}
