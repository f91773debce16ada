package agent

import (
	"sync"
	"time"
)

// Of the refused connections of one uid, the first refusalBurst in a
// refusalWindow are recorded one by one; the rest are counted.
const (
	refusalBurst  = 20
	refusalWindow = time.Minute
	refusalUIDs   = 4096 // uids remembered at once
)

// refusals counts refused connections by uid. The zero value is ready.
type refusals struct {
	mu  sync.Mutex
	uid map[uint32]*refusalCount
}

type refusalCount struct {
	since      time.Time
	recorded   int
	unrecorded int
}

// count notes one refusal. It reports whether to record it, and how many went
// unrecorded before.
func (r *refusals) count(uid uint32, now time.Time) (before int, record bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.uid == nil || len(r.uid) >= refusalUIDs {
		r.uid = map[uint32]*refusalCount{}
	}
	c := r.uid[uid]
	if c == nil {
		c = &refusalCount{since: now}
		r.uid[uid] = c
	}
	if now.Sub(c.since) >= refusalWindow {
		before = c.unrecorded
		*c = refusalCount{since: now}
	}
	if c.recorded >= refusalBurst {
		c.unrecorded++
		return 0, false
	}
	c.recorded++
	return before, true
}
