package upstream

import (
	"net"
	"sync"
	"sync/atomic"
)

// rawConn is the connection below TLS. It can be closed from outside, tells when
// it is, and after the handshake keeps the server's first words until a request
// is there to hear them: they may be the refusal of our certificate.
type rawConn struct {
	net.Conn
	closed func() // set before use
	spoken func() // likewise; called at the server's first words

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
		r.spoken()
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
