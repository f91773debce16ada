package agent

import (
	"holdfast/agent/audit"
	"holdfast/agent/peer"
	"holdfast/agent/queue"
)

// Watchers returns how many callers watch.
func (a *Agent) Watchers() int {
	a.watch.mu.Lock()
	defer a.watch.mu.Unlock()
	return len(a.watch.subs)
}

// ShareOf returns whose share of a device's time a request counts for.
func ShareOf(p *peer.Peer, reported *audit.Reported) queue.Caller {
	return (&request{conn: &connection{peer: p}, reported: reported}).caller()
}
