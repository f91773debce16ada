package agent

import (
	"context"
	"fmt"
	"slices"

	"holdfast/agent/store"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
)

// checkPolicy asks the policy and does nothing else. An administrator of the agent may
// ask about any user. Other callers may ask about themselves, and get the same answer
// for a key that is missing and a key that is forbidden.
func (r *request) checkPolicy(_ context.Context, p *agentwire.CheckPolicyParameters) (*agentwire.CheckPolicyReply, error) {
	op := policy.Operation(p.Operation)
	if !slices.Contains(policy.Operations(), op) {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("there is no operation %.40q", p.Operation), Hint: fmt.Sprintf("one of %v", policy.Operations())}
	}
	if err := r.reporting(p); err != nil {
		return nil, err
	}
	if !r.privileged() {
		return r.checkOwn(op, p)
	}
	id := peer.Identity{UID: p.UID, User: r.agent.peers.Names.User(p.UID), Groups: p.GIDs, Unit: p.Unit}
	if len(p.GIDs) > 0 {
		id.GID = p.GIDs[0]
	}
	owner := store.Owner{UID: id.UID, User: id.User}
	if rec, ok := r.agent.lookup(p.UID, p.Key); ok && op != policy.Seal && op != policy.Unseal {
		owner = rec.Owner // a sealed secret is always the caller's
	}
	return checked(r.agent.policy.Load().Decide(policy.Query{Peer: id, Reported: r.agent.reportedTo(r.reported), Operation: op, Key: p.Key, Owner: owner.UID, OwnerUser: owner.User})), nil
}

// reporting notes the process that the caller would report.
func (r *request) reporting(p *agentwire.CheckPolicyParameters) error {
	switch {
	case p.ForUID == nil && p.ForUnit == "":
		return nil
	case p.ForUID == nil:
		return &fault.Error{Kind: fault.BadRequest, Message: "forUnit needs forUID"}
	}
	// Rules look at neither process nor start time: any will do.
	return r.onBehalfOf(&agentwire.Reported{UID: *p.ForUID, PID: 1, Start: 1, Unit: p.ForUnit})
}

func checked(d policy.Decision) *agentwire.CheckPolicyReply {
	reason := d.Reason
	if d.Where != "" {
		reason = d.Where + ": " + reason
	}
	return &agentwire.CheckPolicyReply{Allowed: d.Allowed, Rule: d.Rule, Reason: reason}
}

// checkOwn returns the decision that find would get or, for operations on no existing
// key, the decision that allow would get.
func (r *request) checkOwn(op policy.Operation, p *agentwire.CheckPolicyParameters) (*agentwire.CheckPolicyReply, error) {
	uid := r.conn.peer.UID
	if p.UID != uid || len(p.GIDs) > 0 || p.Unit != "" {
		return nil, &fault.Error{
			Kind: fault.Denied, Message: "only root and the agent's own uid may ask about another uid, other groups or a unit",
			Hint: "`holdfast policy check --file FILE` needs no agent",
		}
	}
	switch op {
	case policy.Create, policy.Adopt, policy.Seal, policy.Unseal, policy.ListCards, policy.ManageCards, policy.Status, policy.Audit:
		return checked(r.decide(op, p.Key, r.self())), nil
	}
	if rec, ok := r.agent.lookup(uid, p.Key); ok {
		if d := r.decide(op, p.Key, rec.Owner); d.Allowed {
			return checked(d), nil
		}
	}
	return &agentwire.CheckPolicyReply{Rule: "default", Reason: denied(op, p.Key, uid).Error()}, nil
}
