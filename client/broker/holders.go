package broker

import (
	"sync"
	"time"

	"holdfast/client/broker/ticket"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
)

// holders remembers whom policy was asked about when a process was given a
// ticket: the name and the groups of the plugin, which the policy's rules may
// speak of and which a process alone does not tell.
type holders struct {
	mu    sync.Mutex
	by    map[ticket.Process]holder
	swept time.Time
}

type holder struct {
	identity peer.Identity
	until    time.Time
}

// sweepEvery is how often the tickets that have ended are looked for, and at most
// when so many are remembered.
const (
	sweepEvery = time.Minute
	sweepSoon  = time.Second
	many       = 4096
)

// put remembers for whom a process got its ticket. Lives tells which of the
// processes that are remembered still have one.
func (h *holders) put(p ticket.Process, id peer.Identity, until time.Time, lives func(ticket.Process) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if h.by == nil {
		h.by = map[ticket.Process]holder{}
	}
	if since := now.Sub(h.swept); since > sweepEvery || len(h.by) >= many && since > sweepSoon {
		for process, held := range h.by {
			if now.After(held.until) || !lives(process) {
				delete(h.by, process)
			}
		}
		h.swept = now
	}
	if old := h.by[p]; old.until.After(until) {
		until = old.until // of a ticket for another profile
	}
	h.by[p] = holder{identity: id, until: until}
}

func (h *holders) get(p ticket.Process) (peer.Identity, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, ok := h.by[p]
	return held.identity, ok
}

// mayProxy is what the proxy asks about each request: what policy says now. Of a
// process that nobody remembers it says no.
func (b *Broker) mayProxy(who ticket.Process, profile string) bool {
	id, ok := b.holders.get(who)
	return ok && b.decide(id, policy.Proxy, profile)
}
