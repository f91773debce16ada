package varlink

import (
	"errors"
	"sync/atomic"
	"syscall"
	"time"
)

// watchAfter is how long a method has run when watch begins to look. Most have
// returned by then, and starting and ending a watch costs as much as they do.
const watchAfter = 5 * time.Millisecond

// watch reads ahead while a method runs, because only a read shows that the peer
// has closed the connection; then it calls cancel. What it reads is the beginning
// of the next request and stays in the buffer. When there is no room to read on,
// the end would go unnoticed: that is crowded, and calls cancel as well. The
// returned function ends the watch and waits for that: afterwards the buffer is
// the caller's again.
func (c *serving) watch(cancel func()) (stop func()) {
	var over atomic.Bool
	ended := make(chan struct{})
	begin := time.AfterFunc(watchAfter, func() {
		defer close(ended)
		if c.in.buf == nil {
			c.in.resize(smallBuffer)
		}
		for c.in.n < smallBuffer {
			// The deadline comes before the look at over: if stop runs in between,
			// either it is seen here or its deadline interrupts the read.
			c.conn.SetReadDeadline(time.Time{})
			if over.Load() {
				return
			}
			if err := c.in.fillFree(); err != nil && !timedOut(err) {
				cancel()
				return
			}
		}
		c.crowded = true
		cancel()
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

// reset says that the peer closed the connection with something unread.
func reset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
