package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/client"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
)

// An agent that is being restarted is back within a second. One that gives no
// answer for longer than it lets its device take is stuck.
const (
	absence = time.Second
	again   = 50 * time.Millisecond
	hung    = 5 * time.Second
)

// patiently does something that asks the agent, and again for a while when the
// agent cannot be reached.
func (b *Broker) patiently(ctx context.Context, do func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, hung)
	defer cancel()
	for until := time.Now().Add(absence); ; {
		err := do(bounded)
		var unreachable *client.UnreachableError
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return b.stuck(ctx, err)
		case !errors.As(err, &unreachable) || time.Now().After(until):
			return err
		}
		select {
		case <-bounded.Done():
			return err
		case <-time.After(again):
		}
	}
}

// stuck says what gave no answer for so long: the device, when the agent answers
// what it needs no device for.
func (b *Broker) stuck(ctx context.Context, err error) error {
	ctx, end := context.WithTimeout(ctx, glance)
	defer end()
	_, silent := b.Agent.Keys(ctx, false)
	if _, answered := fault.AsError(silent); silent != nil && !answered {
		return hangs(hung, err)
	}
	return &fault.Error{
		Kind:    fault.DeviceWedged,
		Message: fmt.Sprintf("the agent's device gave no answer within %s", hung),
		Hint:    "`holdfast status` shows what it is doing",
		Err:     err,
	}
}

// hangs is for an agent that takes connections and does not answer.
func hangs(after time.Duration, err error) error {
	return &fault.Error{
		Kind:    brokerwire.AgentUnreachable,
		Message: fmt.Sprintf("the agent gave no answer within %s", after),
		Hint:    "it hangs: restart it (systemctl --user restart holdfast-agent), and look at its log",
		Err:     err,
	}
}
