package varlink

import (
	"errors"
	"sync/atomic"
	"syscall"
	"time"
)

// watchAfter is how long a method runs before watch begins to read. Most methods
// return earlier, and starting and ending a watch costs as much as they do.
const watchAfter = 5 * time.Millisecond

// watch reads ahead while a method runs, because only a read shows that the peer
// has closed the connection; then it calls cancel. The bytes that it reads begin
// the next request and stay in the buffer. When the buffer is full, a close would go
// undetected: watch then sets overflow and calls cancel as well. Once the final reply
// is on its way, a full buffer is only the next request. The returned function ends the
// watch and waits for its end: afterwards the caller owns the buffer again.
func (c *serving) watch(cancel func()) (stop func()) {
	var over atomic.Bool
	ended := make(chan struct{})
	begin := time.AfterFunc(watchAfter, func() {
		defer close(ended)
		if c.in.buf == nil {
			c.in.resize(smallBuffer)
		}
		for c.in.n < smallBuffer {
			// The deadline is set before over is read: if stop runs in between, either
			// over is set here or its deadline interrupts the read.
			c.conn.SetReadDeadline(time.Time{})
			if over.Load() {
				return
			}
			if err := c.in.fillFree(); err != nil && !timedOut(err) {
				cancel()
				return
			}
		}
		if !c.replying.Load() {
			c.overflow = true
			cancel()
		}
	})
	return func() {
		if begin.Stop() {
			return
		}
		over.Store(true)
		c.conn.SetReadDeadline(past)
		<-ended
	}
}

// reset reports whether the peer closed the connection with unread data.
func reset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
