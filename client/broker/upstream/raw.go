package upstream

import (
	"net"
	"sync"
	"sync/atomic"
)

// rawConn is the connection below TLS. It can be closed from outside, reports its
// close, and after the handshake holds back the server's first bytes until a request
// was sent: they may be the rejection of our certificate.
type rawConn struct {
	net.Conn
	closed    func() // set before use
	firstRead func() // likewise; called at the server's first bytes

	once     sync.Once
	hold     chan struct{} // closed to read the server's first bytes
	holds    atomic.Bool   // the handshake is done
	read     atomic.Bool   // the server's first bytes were read
	answered atomic.Bool   // a request was answered
	listen   func()        // closes hold
	gone     chan struct{}
}

func newRawConn(c net.Conn) *rawConn {
	r := &rawConn{Conn: c, hold: make(chan struct{}), gone: make(chan struct{})}
	r.listen = sync.OnceFunc(func() { close(r.hold) })
	return r
}

// handshakeDone is called at the end of the handshake.
func (r *rawConn) handshakeDone() { r.holds.Store(true) }

// Read implements net.Conn.
func (r *rawConn) Read(b []byte) (int, error) {
	if r.holds.Load() && !r.read.Load() {
		select {
		case <-r.hold:
		case <-r.gone:
			return 0, net.ErrClosed
		}
		n, err := r.Conn.Read(b)
		r.read.Store(true)
		r.firstRead()
		return n, err
	}
	return r.Conn.Read(b)
}

// Write implements net.Conn. When a server has rejected us and closed, writing fails
// before its reason is read. That failure is dropped: reading fails too, with the
// reason.
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
