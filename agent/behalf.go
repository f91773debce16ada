package agent

import (
	"fmt"

	"holdfast/agent/audit"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
)

// onBehalfOf notes the process for which the caller says that it asks, for the audit
// log and for rules that narrow by it. It rejects a report that cannot be true, which
// would mislead a reader of the log.
func (r *request) onBehalfOf(p *agentwire.Reported) error {
	if p == nil {
		return nil
	}
	flaw := ""
	switch {
	case p.UID == peer.OverflowUID || p.UID == ^uint32(0):
		flaw = fmt.Sprintf("uid %d", p.UID)
	case p.PID <= 0:
		flaw = fmt.Sprintf("pid %d", p.PID)
	case p.Start == 0:
		flaw = "a process without a start time"
	case p.Unit != "" && !peer.IsUnit(p.Unit):
		flaw = fmt.Sprintf("a unit named %.80q", p.Unit)
	default:
		r.reported = &audit.Reported{UID: p.UID, PID: p.PID, Start: p.Start, Unit: p.Unit}
		return nil
	}
	return &fault.Error{
		Kind: fault.BadRequest, Message: "onBehalfOf reports " + flaw + ", which no process can have",
		Hint: "report the process as its connection shows it, or leave onBehalfOf out",
	}
}

// reportedTo returns a report as the policy takes it. The agent looks up the user's
// name itself.
func (a *Agent) reportedTo(p *audit.Reported) *policy.Reported {
	if p == nil {
		return nil
	}
	return &policy.Reported{UID: p.UID, User: a.peers.Names.User(p.UID), Unit: p.Unit}
}
