package agent

import (
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

// ShareOf returns the identity of a request's caller in a device's queue.
func ShareOf(p *peer.Peer, reported *audit.Reported) queue.Caller {
	return (&request{conn: &connection{peer: p}, reported: reported}).caller()
}

// WaitForPerson returns how many requests wait for a user's answer.
func (a *Agent) WaitForPerson() int {
	a.prompts.mu.Lock()
	defer a.prompts.mu.Unlock()
	n := 0
	for _, one := range a.prompts.open {
		n += len(one.waiting)
	}
	return n
}

// Lanes returns how many units have a lane.
func (a *Agent) Lanes(backend string) int { return a.devices[backend].lanes.Len() }

// ForgetClosedPrompts makes the next question come at once, although a user
// closed one a moment ago.
func (a *Agent) ForgetClosedPrompts() {
	a.prompts.mu.Lock()
	defer a.prompts.mu.Unlock()
	clear(a.prompts.closed)
}

// NewAt is New with a clock for grants.
var NewAt = newAt

// Claims returns how many slots are claimed.
func (a *Agent) Claims() int {
	a.claims.mu.Lock()
	defer a.claims.mu.Unlock()
	return len(a.claims.held)
}

// CardOf returns the card that a file to adopt names.
func CardOf(file []byte) uint32 { return cardOf(file) }

// PublishPolicy publishes a change of the policy.
func (a *Agent) PublishPolicy() { a.watch.publish(event{what: "policy"}) }
