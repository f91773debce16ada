package proxy

import (
	"net/http"
	"sync"
)

// A request costs tens of kilobytes while it is in progress, and a watch lasts for
// hours: without a limit, one user's thousands would end the broker for all users.
const (
	maxRequests       = 8192
	maxRequestsPerUID = 2048
)

// requestLimit counts the requests in progress. The zero value is ready for use.
type requestLimit struct {
	mu     sync.Mutex
	all    int
	perUID map[uint32]int
}

// enter counts a request of uid until leave, or refuses it.
func (c *requestLimit) enter(uid uint32) *refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.perUID[uid]
	if c.all >= maxRequests || own >= maxRequestsPerUID {
		return refuse(http.StatusTooManyRequests, "limit", "end some watches or commands", "too many requests of uid %d in progress (%d)", uid, own)
	}
	if c.perUID == nil {
		c.perUID = map[uint32]int{}
	}
	c.all++
	c.perUID[uid]++
	return nil
}

func (c *requestLimit) leave(uid uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.perUID[uid]--; c.perUID[uid] == 0 {
		delete(c.perUID, uid)
	}
}
