package agent

import (
	"sync"
	"time"

	"holdfast/agent/prompt"
	"holdfast/agent/store"
	"holdfast/internal/keys"
	"holdfast/internal/policy"
)

// The states of a touch in Watch.
const (
	touchWanted = "wanted"
	touchDone   = "done"
)

// A touching is a signature that may wait for a touch. The device does not report that
// it waits: only the missing answer shows it.
type touching struct {
	agent  *Agent
	key    keyID
	notice func() // withdraws the notice
	timer  *time.Timer

	mu     sync.Mutex
	waited bool // wanted was published
	over   bool
}

// touch notifies the user and the watchers when the device, which begins to work now,
// waits for a touch. It returns nil for a key that needs no touch.
func (r *request) touch(op policy.Operation, rec store.Record) *touching {
	card := rec.Material.Card
	if card == nil || card.TouchPolicy == keys.PolicyNever {
		return nil
	}
	t := &touching{agent: r.agent, key: idOf(rec), notice: func() {}}
	if r.agent.Person != nil {
		t.notice = r.agent.Person.Touch(r.subject(op, rec))
	}
	t.timer = time.AfterFunc(prompt.TouchDelay, t.wanted)
	return t
}

func (t *touching) wanted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.waited = true
		t.publish(touchWanted)
	}
}

// done is called when the device has answered.
func (t *touching) done(err error) {
	if t == nil {
		return
	}
	t.timer.Stop()
	t.notice()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over = true; t.waited {
		t.publish(touchDone)
		t.agent.counts.touches.Add(1, outcomeOf(err))
	}
}

func (t *touching) publish(state string) {
	t.agent.watch.publish(event{what: "touch", name: t.key.Name, state: state, key: &t.key})
}
