package agent

import (
	"context"
	"fmt"
	"maps"
	"time"

	"holdfast/agent/store"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/policy"
)

// A yes is a person's to one use of a key: by one process, or by any when process
// is empty. One to a certificate request is none to signing in.
type yes struct {
	key     keyID
	process string
	op      policy.Operation
}

// yesUntil is how long a yes holds; without an end it holds until the key is
// locked.
type yesUntil struct {
	end  time.Time
	unit unitID // what the key is on
}

func (u yesUntil) holds(now time.Time) bool { return u.end.IsZero() || now.Before(u.end) }

// maxYeses is how many are remembered. When there are more, people are asked again.
const maxYeses = 1024

// confirm gets a person's yes, where the key wants one and has none that still
// holds. A touch for each signature is a yes to each.
func (r *request) confirm(ctx context.Context, op policy.Operation, rec store.Record) error {
	card := rec.Material.Card
	if rec.Confirm == nil || card != nil && card.TouchPolicy == keys.PolicyAlways {
		return nil
	}
	y, lasts := r.yesFor(op, rec)
	if lasts && r.agent.saidYes(y) {
		return nil
	}
	if r.agent.Person == nil {
		return &fault.Error{Kind: fault.ConfirmationRequired, Message: yesWanted + ", and this agent asks nobody", Hint: yesHint}
	}
	q := question{what: fmt.Sprintf("a yes to %d/%s", y.key.owner, y.key.name)}
	if lasts {
		q.share = fmt.Sprintf("yes to %s for %s", y.op, y.process)
	}
	q.ask = func(a *asking) error {
		if lasts && r.agent.saidYes(y) {
			return nil // to a prompt that ended just before
		}
		a.shown.Store(true)
		return r.askYes(a.ctx, op, rec, y, lasts)
	}
	return explained(r.agent.prompts.put(ctx, r, q), fault.ConfirmationRequired, yesWanted, yesHint)
}

const (
	yesWanted = "the key wants a person's yes"
	yesHint   = "try again where the desktop can be asked, and say yes"
)

// yesFor returns what a yes to r's use of rec would be good for, and whether it is
// good for more than this one.
func (r *request) yesFor(op policy.Operation, rec store.Record) (y yes, lasts bool) {
	y.key, y.op = idOf(rec), op
	switch rec.Confirm.When {
	case store.Once:
		return y, true
	case store.OncePerProcess:
		y.process = r.process()
		return y, y.process != ""
	}
	return y, false
}

// askYes asks, and remembers a yes that is good for longer, unless the key was
// locked meanwhile.
func (r *request) askYes(ctx context.Context, op policy.Operation, rec store.Record, y yes, lasts bool) error {
	o := r.agent.begin(rec)
	defer r.agent.end(o)
	err := r.agent.prompted(ctx, "confirm", func(ctx context.Context) error { return r.agent.Person.Confirm(ctx, r.subject(op, rec)) })
	if err != nil || !lasts {
		return err
	}
	u := yesUntil{unit: o.unit}
	if m := rec.Confirm.Minutes; m > 0 {
		u.end = time.Now().Add(time.Duration(m) * time.Minute).Round(0)
	}
	r.agent.keepYes(o, y, u)
	return nil
}

func (a *Agent) saidYes(y yes) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	u, ok := a.yeses[y]
	return ok && u.holds(time.Now())
}

func (a *Agent) keepYes(o *opening, y yes, u yesUntil) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o.shut {
		return
	}
	if len(a.yeses) >= maxYeses {
		now := time.Now()
		maps.DeleteFunc(a.yeses, func(_ yes, u yesUntil) bool { return !u.holds(now) })
	}
	for old := range a.yeses {
		if len(a.yeses) < maxYeses {
			break
		}
		delete(a.yeses, old)
	}
	a.yeses[y] = u
}

// confirmOf reads when a key is to be confirmed.
func confirmOf(c *agentwire.Confirm) (*store.Confirm, error) {
	if c == nil {
		return nil, nil
	}
	asked := &store.Confirm{When: store.When(c.When), Minutes: c.Minutes}
	if err := asked.Check(); err != nil {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: err.Error(), Hint: "once, always, or process and 1 to 60 minutes"}
	}
	return asked, nil
}

func wireConfirm(c *store.Confirm) *agentwire.Confirm {
	if c == nil {
		return nil
	}
	return &agentwire.Confirm{When: string(c.When), Minutes: c.Minutes}
}
