package upstream

import (
	"errors"
	"io"
	"net"
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
	shared  bool // takes one request after the other; the others close after one
	made    time.Time
	expires time.Time // when the client's certificate does

	draining atomic.Bool
	first    verdict

	mu      sync.Mutex // held to reserve, and to close what is idle: one or the other
	ended   bool
	idle    *time.Timer
	expired *time.Timer
}

// verdict is what the server said first on a connection: nil for an answer. With
// TLS 1.3 a server judges the client's certificate when the client is done, so
// that its refusal meets the first request; those beside it may see only that the
// connection is gone, and take over the verdict.
type verdict struct {
	once sync.Once
	done chan struct{}
	err  error
}

func (v *verdict) set(err error) {
	if err != nil && !said(err) {
		return
	}
	v.once.Do(func() {
		v.err = err
		close(v.done)
	})
}

// said reports whether err was read from the connection, rather than being what is
// left to say once it is gone.
func said(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && (op.Op == "remote error" || op.Op == "read") && !errors.Is(err, net.ErrClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// start begins to use the connection, whose handshake is done. What is not shared
// is reserved for the one request that it was made for.
func (c *conn) start() error {
	if !c.pool.pools.enter() {
		c.raw.Close()
		return errRetired
	}
	c.made = time.Now()
	c.idle = time.AfterFunc(time.Hour, c.closeIdle)
	c.expired = time.AfterFunc(time.Until(c.expires), c.cut)
	c.raw.closed = c.closed
	time.AfterFunc(verdictPatience, c.raw.listen) // should nobody send anything, its end is to be noticed
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

// closed is called once, when the connection is closed, and perhaps from inside of
// net/http with its locks held: hence beside the caller.
func (c *conn) closed() {
	c.idle.Stop()
	c.expired.Stop()
	go func() {
		defer c.pool.pools.running.Done()
		c.pool.pools.counts.change(c.pool.id.profile, -1, 0)
		c.pool.remove(c)
	}()
}

// reserve takes room for one request, when there is.
func (c *conn) reserve() bool {
	if c.draining.Load() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.ended && c.http.Reserve() == nil
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
	}
	c.first.set(err)
	return answer, err
}

// busy reports whether a request is under way, an upgraded one included.
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

// settle sees to it that a connection without requests ends: soon or now.
func (c *conn) settle() {
	if c.draining.Load() || !c.shared {
		c.idle.Reset(0)
		return
	}
	c.idle.Reset(c.pool.id.idle)
}

// closeIdle closes the connection unless a request is under way; then the end of
// the request will settle it again.
func (c *conn) closeIdle() {
	c.mu.Lock()
	c.ended = c.ended || !c.busy()
	ended := c.ended
	c.mu.Unlock()
	if ended {
		c.cut()
	}
}

// cut closes the connection at once, whatever runs on it.
func (c *conn) cut() {
	c.raw.Close() // first, so that no farewell can block on a network that is gone
	_ = c.http.Close()
}

// rawConn is the connection below TLS. It can be closed from outside, tells when
// it is, and after the handshake keeps the server's first words until a request
// is there to hear them: they may be the refusal of our certificate.
type rawConn struct {
	net.Conn
	closed func() // set before use

	once     sync.Once
	hold     chan struct{} // not nil after the handshake, closed to listen
	holds    atomic.Bool
	heard    atomic.Bool
	answered atomic.Bool // a request was
	listen   func()
	gone     chan struct{}
}

func newRawConn(c net.Conn) *rawConn {
	r := &rawConn{Conn: c, hold: make(chan struct{}), gone: make(chan struct{})}
	r.listen = sync.OnceFunc(func() { close(r.hold) })
	return r
}

// shaken is called when the handshake is done.
func (r *rawConn) shaken() { r.holds.Store(true) }

// Read implements net.Conn.
func (r *rawConn) Read(b []byte) (int, error) {
	if r.holds.Load() && !r.heard.Load() {
		select {
		case <-r.hold:
		case <-r.gone:
			return 0, net.ErrClosed
		}
		n, err := r.Conn.Read(b)
		r.heard.Store(true)
		return n, err
	}
	return r.Conn.Read(b)
}

// Write implements net.Conn. A server that has refused us and closed makes writing
// fail before its reason is read: that failure is kept back, since reading will
// fail too, and better.
func (r *rawConn) Write(b []byte) (int, error) {
	n, err := r.Conn.Write(b)
	if err != nil && r.holds.Load() && !r.answered.Load() {
		r.listen()
		return len(b), nil
	}
	return n, err
}

// Close implements net.Conn.
func (r *rawConn) Close() error {
	err := net.ErrClosed
	r.once.Do(func() {
		close(r.gone)
		err = r.Conn.Close()
		if r.closed != nil {
			r.closed()
		}
	})
	return err
}
