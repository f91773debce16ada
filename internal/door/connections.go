package door

import "sync"

// connections counts the open connections, of each uid and in all. Its methods are
// safe for concurrent use.
type connections struct {
	perUID, total int // limits

	mu    sync.Mutex
	open  int
	byUID map[uint32]int
}

// enter counts a connection of uid. It reports false, and counts nothing, when
// either limit is reached.
func (c *connections) enter(uid uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byUID[uid] >= c.perUID || c.open >= c.total {
		return false
	}
	c.byUID[uid]++
	c.open++
	return true
}

// leave ends the count of a connection that enter counted.
func (c *connections) leave(uid uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.byUID[uid]--; c.byUID[uid] == 0 {
		delete(c.byUID, uid)
	}
}

func (c *connections) number() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}
