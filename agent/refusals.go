package agent

import (
	"strconv"
	"sync"
	"time"
)

// Of what one uid is refused within a refusalWindow, so much is recorded one by
// one and the rest is counted: nobody who is refused everything can fill the disk
// on which everybody's signatures depend.
const (
	refusedConnections = 20
	refusedRequests    = 200
	refusalWindow      = time.Minute
	refusalUIDs        = 4096 // uids remembered at once
)

// refusals counts what each uid is refused.
type refusals struct {
	burst int // recorded in one window

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
	if c.recorded >= r.burst {
		c.unrecorded++
		return 0, false
	}
	c.recorded++
	return before, true
}

// withCount adds to a record's facts how many went unrecorded before it.
func withCount(facts map[string]string, before int) map[string]string {
	if before == 0 {
		return facts
	}
	more := map[string]string{"unrecorded": strconv.Itoa(before)}
	for name, fact := range facts {
		more[name] = fact
	}
	return more
}
