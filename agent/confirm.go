package agent

import (
	"context"
	"fmt"
	"time"

	"holdfast/agent/grants"
	"holdfast/agent/store"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/policy"
)

// confirm asks a user to confirm the use of a key, where the key wants that and no
// confirmation still holds. A touch for each signature confirms each.
func (r *request) confirm(ctx context.Context, op policy.Operation, rec store.Record) error {
	card := rec.Material.Card
	if rec.Confirm == nil || card != nil && card.TouchPolicy == keys.PolicyAlways {
		return nil
	}
	u, lasts := r.useOf(op, rec)
	if lasts && r.agent.grants.Confirmed(u) {
		return nil
	}
	wanted := fault.Error{Kind: fault.ConfirmationRequired, Message: "the use of the key must be confirmed", Hint: "try again where the desktop can show the prompt, and confirm it"}
	if r.agent.Person == nil {
		wanted.Message += ", and this agent shows no prompts"
		return &wanted
	}
	q := question{what: fmt.Sprintf("the confirmation of %d/%s", u.Key.Owner, u.Key.Name)}
	if lasts {
		q.share = fmt.Sprintf("%s by %s", u.Operation, u.Process)
	}
	q.ask = func(a *asking) error {
		if lasts && r.agent.grants.Confirmed(u) {
			return nil // by a prompt that ended just before
		}
		a.shown.Store(true)
		return r.askConfirmation(a.ctx, op, rec, u, lasts)
	}
	return explain(r.agent.prompts.put(ctx, r, q), wanted)
}

// useOf returns the use of rec that a confirmation for r is for, and whether the
// confirmation lasts beyond this one request.
func (r *request) useOf(op policy.Operation, rec store.Record) (u grants.Use, lasts bool) {
	u.Key, u.Operation = idOf(rec), string(op)
	switch rec.Confirm.When {
	case store.Once:
		return u, true
	case store.OncePerProcess:
		u.Process = r.process()
		return u, u.Process != ""
	}
	return u, false
}

// askConfirmation asks the user, and grants u where the confirmation lasts, unless
// the key was locked meanwhile.
func (r *request) askConfirmation(ctx context.Context, op policy.Operation, rec store.Record, u grants.Use, lasts bool) error {
	pending := r.agent.begin(rec)
	defer pending.End()
	err := r.agent.prompted(ctx, "confirm", func(ctx context.Context) error { return r.agent.Person.Confirm(ctx, r.subject(op, rec)) })
	if err != nil || !lasts {
		return err
	}
	var until time.Time
	if m := rec.Confirm.Minutes; m > 0 {
		until = r.agent.wallClock().Add(time.Duration(m) * time.Minute)
	}
	pending.Confirm(u.Operation, u.Process, until)
	return nil
}

// confirmOf reads when the uses of a key are to be confirmed.
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
