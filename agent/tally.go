package agent

import (
	"strconv"
	"sync"
	"time"

	"holdfast/internal/fault"
)

// How much of a thing one uid may do within a tallyWindow. Nobody may fill the
// disk on which everybody's signatures depend, neither with what they are refused
// nor with what costs no device time, or keep the device busy with making keys.
const (
	refusedConnections = 20  // recorded one by one; the rest is counted
	refusedRequests    = 200 // likewise
	announcements      = 30  // locks of what is not open, told to who watches: fewer than a watcher may be behind
	paperwork          = 120 // recorded requests that need no device
	makings            = 30  // new keys on a machine's agent; an RSA key counts as rsaMaking

	rsaMaking   = 10
	tallyWindow = time.Minute
	tallyUIDs   = 4096 // uids remembered at once
)

// tally counts what each uid does.
type tally struct {
	most int // in one window

	mu  sync.Mutex
	uid map[uint32]*tallyCount
}

type tallyCount struct {
	since  time.Time
	within int
	beyond int
}

// count notes something that uid does, at the given cost. It reports whether that
// is within the limit, and how much of the window before was beyond it.
func (t *tally) count(uid uint32, cost int, now time.Time) (before int, within bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.uid == nil || len(t.uid) >= tallyUIDs {
		t.uid = map[uint32]*tallyCount{}
	}
	c := t.uid[uid]
	if c == nil {
		c = &tallyCount{since: now}
		t.uid[uid] = c
	}
	if now.Sub(c.since) >= tallyWindow {
		before = c.beyond
		*c = tallyCount{since: now}
	}
	if c.within+cost > t.most {
		c.beyond++
		return 0, false
	}
	c.within += cost
	return before, true
}

// limit refuses what is beyond the limit.
func (t *tally) limit(uid uint32, cost int, what string) error {
	if _, within := t.count(uid, cost, time.Now()); within {
		return nil
	}
	return &fault.Error{Kind: fault.Busy, Message: "too many " + what + " of yours in a minute", Hint: "try again later", RetryAfter: tallyWindow}
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
