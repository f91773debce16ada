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
func (r *request) onBehalfOf(who *agentwire.Reported) error {
	if who == nil {
		return nil
	}
	flaw := ""
	switch {
	case who.UID == peer.OverflowUID || who.UID == ^uint32(0):
		flaw = fmt.Sprintf("uid %d", who.UID)
	case who.PID <= 0:
		flaw = fmt.Sprintf("pid %d", who.PID)
	case who.Start == 0:
		flaw = "a process without a start time"
	case who.Unit != "" && !peer.IsUnit(who.Unit):
		flaw = fmt.Sprintf("a unit named %.80q", who.Unit)
	default:
		r.reported = &audit.Reported{UID: who.UID, PID: who.PID, Start: who.Start, Unit: who.Unit}
		return nil
	}
	return &fault.Error{
		Kind: fault.BadRequest, Message: "onBehalfOf reports " + flaw + ", which no process can have",
		Hint: "report the process as its connection shows it, or leave onBehalfOf out",
	}
}

// reportedTo returns a report as the policy takes it. The agent looks up the user's
// name itself.
func (a *Agent) reportedTo(who *audit.Reported) *policy.Reported {
	if who == nil {
		return nil
	}
	return &policy.Reported{UID: who.UID, User: a.peers.Names.User(who.UID), Unit: who.Unit}
}
