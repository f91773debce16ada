package agent

import (
	"maps"
	"strconv"
	"sync"
	"time"

	"holdfast/internal/fault"
)

// rateLimits bound what each uid does within a rateWindow. A uid may not fill the disk
// on which the signatures of all users depend, neither with requests that are rejected
// nor with requests that use no device time, and may not keep the device busy by
// making keys.
type rateLimits struct {
	rejectedConnections rateLimit // beyond it they are counted and not recorded one by one
	deniedRequests      rateLimit // likewise
	lockRecords         rateLimit // likewise
	lockAnnouncements   rateLimit // to watchers, of locks that change nothing; fewer than watchBacklog
	auditOnlyRequests   rateLimit // requests that are recorded and use no device
	createdKeys         rateLimit // on a machine's agent, sealed secrets included; an RSA key counts as rsaKeyCost
}

func newRateLimits() rateLimits {
	return rateLimits{
		rejectedConnections: rateLimit{most: 20},
		deniedRequests:      rateLimit{most: 200},
		lockRecords:         rateLimit{most: 120},
		lockAnnouncements:   rateLimit{most: 30},
		auditOnlyRequests:   rateLimit{most: 120},
		createdKeys:         rateLimit{most: 30},
	}
}

const (
	rsaKeyCost = 10
	rateWindow = time.Minute
	rateUIDs   = 4096 // uids remembered at once
)

// rateLimit counts one thing that each uid does. Its methods are safe for concurrent
// use.
type rateLimit struct {
	most int // in one window

	mu  sync.Mutex
	uid map[uint32]*rateCount
}

type rateCount struct {
	since  time.Time
	within int // cost of what was within the limit
	beyond int // number of what was beyond it
}

// count notes one thing that uid does, at the given cost. It reports whether that is
// within the limit, and for the first one in a window how many were beyond the limit
// in the window before.
func (l *rateLimit) count(uid uint32, cost int, now time.Time) (before int, within bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.uid == nil || len(l.uid) >= rateUIDs {
		l.uid = map[uint32]*rateCount{}
	}
	c := l.uid[uid]
	if c == nil {
		c = &rateCount{since: now}
		l.uid[uid] = c
	}
	if now.Sub(c.since) >= rateWindow {
		before = c.beyond
		*c = rateCount{since: now}
	}
	if c.within+cost > l.most {
		c.beyond++
		return 0, false
	}
	c.within += cost
	return before, true
}

// check counts and returns a busy error beyond the limit.
func (l *rateLimit) check(uid uint32, cost int, what string) error {
	if _, within := l.count(uid, cost, time.Now()); within {
		return nil
	}
	return &fault.Error{Kind: fault.Busy, Message: "too many " + what + " of yours in a minute", Hint: "try again later", RetryAfter: rateWindow}
}

// withUnrecorded adds to a record's facts how many such records were left out before
// it.
func withUnrecorded(facts map[string]string, before int) map[string]string {
	if before == 0 {
		return facts
	}
	more := map[string]string{"unrecorded": strconv.Itoa(before)}
	maps.Copy(more, facts)
	return more
}
