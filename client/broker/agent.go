package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/client"
	"holdfast/client/broker/upstream"
	"holdfast/internal/agentwire"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
)

// An agent that restarts is back within a second. One that gives no answer for
// longer than it lets its device take hangs.
const (
	agentRestart  = time.Second
	agentInterval = 50 * time.Millisecond // between two tries
	agentTimeout  = 5 * time.Second
	statusTimeout = time.Second // for status, all profiles together
)

// withAgent calls do, which asks the agent, and again for a while when the agent
// cannot be reached: it may be restarting.
func withAgent(ctx context.Context, agent *client.Client, do func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	for until := time.Now().Add(agentRestart); ; {
		err := do(bounded)
		var unreachable *client.UnreachableError
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return explainTimeout(ctx, agent, err)
		case !errors.As(err, &unreachable) || time.Now().After(until):
			return err
		}
		select {
		case <-bounded.Done():
			return err
		case <-time.After(agentInterval):
		}
	}
}

// explainTimeout finds out what gave no answer: the device, when the agent still
// answers a call that needs no device.
func explainTimeout(ctx context.Context, agent *client.Client, err error) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	_, silent := agent.Keys(ctx, false)
	if _, answered := fault.AsError(silent); silent != nil && !answered {
		return agentHangs(agentTimeout, err)
	}
	return &fault.Error{
		Kind:    fault.DeviceWedged,
		Message: fmt.Sprintf("the agent's device gave no answer within %s", agentTimeout),
		Hint:    "`holdfast status` shows what it is doing",
		Err:     err,
	}
}

// agentHangs is the error for an agent that accepts connections and does not answer.
func agentHangs(after time.Duration, err error) error {
	return &fault.Error{
		Kind:    brokerwire.AgentUnreachable,
		Message: fmt.Sprintf("the agent gave no answer within %s", after),
		Hint:    "it hangs: restart it (systemctl --user restart holdfast-agent), and look at its log",
		Err:     err,
	}
}

// canSign asks the agent for the key of a set that signs in now, and returns it,
// also when it is locked.
func canSign(ctx context.Context, agent *client.Client, set string) (agentwire.Key, error) {
	k, err := agent.Current(ctx, set)
	if err != nil {
		return agentwire.Key{}, err
	}
	info := k.Info()
	if !info.PIN || info.UnlockedUntil != nil && time.Now().Before(*info.UnlockedUntil) {
		return info, nil
	}
	return info, upstream.Locked(&fault.Error{Kind: fault.PINRequired, Message: "it wants its PIN"}, info.Name)
}

// keyCheck asks the agent about the keys of several profiles, about each key once.
// An agent that does not answer is not asked again.
type keyCheck struct {
	agent    *client.Client
	ctx      context.Context
	results  map[string]error // by set; nil for a key that can sign
	noAnswer error            // why the agent does not answer
}

// fault returns why a set of keys cannot sign in now.
func (c *keyCheck) fault(set string) error {
	err, asked := c.results[set]
	switch {
	case asked:
		return err
	case c.noAnswer != nil:
		return c.noAnswer
	}
	_, err = canSign(c.ctx, c.agent, set)
	var unreachable *client.UnreachableError
	switch {
	case c.ctx.Err() != nil:
		err = agentHangs(statusTimeout, err)
		c.noAnswer = err
	case errors.As(err, &unreachable):
		c.noAnswer = err
	}
	c.results[set] = err
	return err
}
