package agent

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"holdfast/agent/audit"
	"holdfast/agent/queue"
	"holdfast/agent/store"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
)

// request is one call: its caller, and its number in the audit log.
type request struct {
	agent *Agent
	conn  *connection
	id    string

	reported *audit.Reported // the process for which the caller says that it asks
	unlocked bool            // a PIN from a prompt was tried in this request's name, and recorded so
}

var lastRequest atomic.Uint64

func (a *Agent) newRequest(ctx context.Context) *request {
	return &request{agent: a, conn: connectionOf(ctx), id: strconv.FormatUint(lastRequest.Add(1), 10)}
}

// caller returns the caller's identity in a device's queue: the unit where the kernel
// reports it reliably, else the uid. A process that the caller reports only divides the
// caller's own share, so that no user of a broker takes all of the broker's share.
func (r *request) caller() queue.Caller {
	p := r.conn.peer
	c := queue.Caller{Peer: fmt.Sprintf("uid:%d", p.UID), Process: fmt.Sprintf("%d/%d", p.PID, p.StartTime)}
	if p.Unit != "" && !p.UnitRacy {
		c.Peer = "unit:" + p.Unit
	}
	if r.reported != nil {
		c.Process += fmt.Sprintf(" for uid:%d", r.reported.UID)
	}
	return c
}

// decide asks the policy.
func (r *request) decide(op policy.Operation, key string, owner store.Owner) policy.Decision {
	return r.agent.policy.Load().Decide(policy.Query{
		Peer: r.conn.peer.Identity, Admin: r.conn.admin, Reported: r.agent.reportedTo(r.reported),
		Operation: op, Key: key, Owner: owner.UID, OwnerUser: owner.User,
	})
}

// allow asks the policy about an operation on no existing key. It records a denial and
// returns it as an error.
func (r *request) allow(op policy.Operation, key string, owner store.Owner) (entry, error) {
	d := r.decide(op, key, owner)
	e := entry{op: op, key: key, owner: owner, rule: d.Rule}
	if d.Allowed {
		return e, nil
	}
	return e, r.deny(e, denied(op, key, r.conn.peer.UID))
}

// find resolves a key's name and asks the policy. A key that is missing and a key that
// is forbidden give the same answer and the same audit record, because callers can read
// their own records.
func (r *request) find(op policy.Operation, name string) (store.Record, entry, error) {
	e := entry{op: op, key: name, owner: r.self()}
	if err := keys.CheckName(name); err != nil {
		return store.Record{}, e, err
	}
	rec, ok := r.agent.lookup(r.conn.peer.UID, name)
	d := r.decide(op, name, rec.Owner)
	if !ok || !d.Allowed {
		return store.Record{}, e, r.deny(e, denied(op, name, r.conn.peer.UID))
	}
	e.owner, e.purpose, e.rule = rec.Owner, rec.Purpose, d.Rule
	return rec, e, nil
}

// machine is the owner of the keys that belong to no user.
const machine = 0

// lookup returns the user's key of that name, else the machine's.
func (a *Agent) lookup(uid uint32, name string) (store.Record, bool) {
	if rec, ok := a.Store.Get(uid, name); ok || !a.System {
		return rec, ok
	}
	return a.Store.Get(machine, name)
}

func (r *request) self() store.Owner {
	return store.Owner{UID: r.conn.peer.UID, User: r.conn.peer.User}
}

// privileged reports whether the caller administers the agent: root, or the
// agent's own uid.
func (r *request) privileged() bool {
	uid := r.conn.peer.UID
	return uid == 0 || uid == r.agent.uid
}

func denied(op policy.Operation, key string, uid uint32) error {
	what := fmt.Sprintf("uid %d may not %s", uid, op)
	if key != "" {
		what = fmt.Sprintf("no key %q, or uid %d may not use it for %s", key, uid, op)
	}
	return &fault.Error{
		Kind: fault.Denied, Message: what,
		Hint: "`holdfast key list` shows the keys that you may use; `holdfast policy check` names the rule that decides",
	}
}

// entry holds the facts of a request for the audit log.
type entry struct {
	op      policy.Operation
	key     string
	owner   store.Owner
	purpose keys.Purpose
	rule    string
	detail  map[string]string
}

// The decisions of policy in the audit log.
const (
	allow = "allow"
	deny  = "deny"
)

// permit records that the request is allowed. When the record cannot be written, the
// request must not go on.
func (r *request) permit(e entry) error {
	r.agent.counts.decisions.Add(1, string(e.op), allow)
	return r.append(e, audit.Record{Kind: audit.KindDecision, Decision: allow})
}

// deny records that the request is denied for the reason why, and returns why.
func (r *request) deny(e entry, why error) error {
	r.agent.counts.decisions.Add(1, string(e.op), deny)
	before, record := r.agent.rates.deniedRequests.count(r.conn.peer.UID, 1, time.Now())
	if !record {
		return why
	}
	e.detail = withUnrecorded(e.detail, before)
	rec := audit.Record{Kind: audit.KindDecision, Decision: deny, Outcome: string(fault.KindOf(why))}
	if err := r.append(e, rec); err != nil {
		return err
	}
	return why
}

// outcome records how a permitted request ended, before the reply leaves, and
// returns err, or the reason why it could not be recorded.
func (r *request) outcome(e entry, err error) error {
	rec := audit.Record{Kind: audit.KindOutcome, Outcome: outcomeOf(err)}
	if auditErr := r.append(e, rec); auditErr != nil {
		return auditErr
	}
	return err
}

func (r *request) append(e entry, rec audit.Record) error {
	rec.Request = r.id
	rec.Caller = callerRecord(r.conn.peer.Identity)
	rec.Caller.Reported = r.reported
	rec.Operation = string(e.op)
	rec.Key = e.key
	rec.Owner = &e.owner.UID
	rec.Purpose = string(e.purpose)
	rec.Rule = e.rule
	rec.Detail = e.detail
	return r.agent.Audit.Append(rec)
}

func callerRecord(id peer.Identity) *audit.Caller {
	return &audit.Caller{UID: id.UID, User: id.User, GID: id.GID, PID: id.PID, Start: id.StartTime, Unit: id.Unit}
}
