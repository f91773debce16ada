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

// WaitForPerson returns how many requests wait for a person's answer.
func (a *Agent) WaitForPerson() int {
	a.prompts.mu.Lock()
	defer a.prompts.mu.Unlock()
	n := 0
	for _, one := range a.prompts.open {
		n += len(one.waiting)
	}
	return n
}

// Lanes returns how many units have queues of their own.
func (a *Agent) Lanes(backend string) int {
	q := a.devices[backend].queues
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.units)
}
