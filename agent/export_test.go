package agent

import (
	"time"

	"holdfast/agent/audit"
	"holdfast/agent/queue"
	"holdfast/internal/peer"
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

// ForgetClosedPrompts makes the next question come at once, although a person
// closed one a moment ago.
func (a *Agent) ForgetClosedPrompts() {
	a.prompts.mu.Lock()
	defer a.prompts.mu.Unlock()
	clear(a.prompts.closed)
}

// PassTime makes everything that was opened as old as if so much time had passed.
func (a *Agent) PassTime(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, u := range a.unlocked {
		u.until = u.until.Add(-d)
		a.unlocked[id] = u
	}
	for y, u := range a.yeses {
		if !u.end.IsZero() {
			u.end = u.end.Add(-d)
			a.yeses[y] = u
		}
	}
}

// Yeses returns how many yeses are remembered.
func (a *Agent) Yeses() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.yeses)
}

// Claims returns how many slots are claimed by who makes a key in them.
func (a *Agent) Claims() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.claims)
}

// CardOf returns the card that a file to adopt names.
func CardOf(file []byte) uint32 { return cardOf(file) }

// PublishPolicy tells who watches that the policy has changed.
func (a *Agent) PublishPolicy() { a.watch.publish(event{what: "policy"}) }
