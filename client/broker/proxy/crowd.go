package proxy

import (
	"fmt"
	"net/http"
	"sync"
)

// A request costs tens of kilobytes while it is under way, and a watch is for hours:
// without a bound one user's thousands would end the broker for everybody.
const (
	maxRequests       = 8192
	maxRequestsPerUID = 2048
)

// crowd counts the requests under way. The zero value is ready for use.
type crowd struct {
	mu     sync.Mutex
	all    int
	perUID map[uint32]int
}

// enter counts a request of uid until leave, or refuses it.
func (c *crowd) enter(uid uint32) *refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.perUID[uid]
	if c.all >= maxRequests || own >= maxRequestsPerUID {
		return &refusal{
			code: http.StatusTooManyRequests, outcome: "crowded",
			message: fmt.Sprintf("%d requests of uid %d are under way, and no more are taken", own, uid), hint: "end some watches or commands",
		}
	}
	if c.perUID == nil {
		c.perUID = map[uint32]int{}
	}
	c.all++
	c.perUID[uid]++
	return nil
}

func (c *crowd) leave(uid uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.perUID[uid]--; c.perUID[uid] == 0 {
		delete(c.perUID, uid)
	}
}
