package proxy

import (
	"errors"
	"sync"
	"time"
)

// These are the bytes that uids without a ticket may send. A frame has 9 bytes at least, so that this
// limits frames too; a handshake has two thousand. A client of a uid that has a ticket
// is not limited: the plugin gets the ticket before the client connects. After a restart
// of the broker, the first request with a ticket of before ends the limit.
var (
	perStranger  = allowance{burst: 512 << 10, perSecond: 32 << 10}
	allStrangers = allowance{burst: 2 << 20, perSecond: 128 << 10} // a user may have thousands of uids
)

var errFlood = errors.New("too many bytes from a uid that has no ticket")

// allowance is how many bytes may come at once, and in the long run.
type allowance struct{ burst, perSecond float64 }

// A budget is what is left of an allowance. The zero value is full.
type budget struct {
	spent float64 // at the time of last
	last  time.Time
}

// refill returns how much of the burst is spent at now.
func (b *budget) refill(a allowance, now time.Time) float64 {
	b.spent = max(0, b.spent-now.Sub(b.last).Seconds()*a.perSecond)
	b.last = now
	return b.spent
}

// strangers counts the bytes of uids that have no ticket. The zero value is ready for
// use.
type strangers struct {
	mu     sync.Mutex
	all    budget
	perUID map[uint32]*budget
}

// spend counts bytes of a uid, and reports whether they are within its budget and that
// of all.
func (s *strangers) spend(uid uint32, bytes int, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.of(uid, now)
	if own.refill(perStranger, now) >= perStranger.burst || s.all.refill(allStrangers, now) >= allStrangers.burst {
		return false
	}
	own.spent += float64(bytes)
	s.all.spent += float64(bytes)
	return true
}

// maxBudgets is how many uids have a budget that is remembered. The budget of all holds
// when those of more uids are forgotten.
const maxBudgets = 1024

// of returns the budget of a uid. The lock is held.
func (s *strangers) of(uid uint32, now time.Time) *budget {
	if own := s.perUID[uid]; own != nil {
		return own
	}
	if len(s.perUID) >= maxBudgets {
		for other, b := range s.perUID {
			if b.refill(perStranger, now) == 0 {
				delete(s.perUID, other)
			}
		}
	}
	if s.perUID == nil || len(s.perUID) >= maxBudgets {
		s.perUID = map[uint32]*budget{}
	}
	own := &budget{last: now}
	s.perUID[uid] = own
	return own
}

// Read reads from the client. The bytes of a uid without a ticket are counted until the
// connection shows one.
func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.counted.Load() && !c.all.strangers.spend(c.uid, n, time.Now()) {
		if c.hasTicket != nil && c.hasTicket(c.uid) {
			c.counted.Store(false)
			return n, err
		}
		c.Close()
		return 0, errFlood
	}
	return n, err
}
