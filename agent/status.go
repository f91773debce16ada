package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"holdfast/agent/audit"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
	"holdfast/internal/varlink"
)

// statusTimeout is how long GetStatus waits for a device that is busy or wedged before
// it returns the last known status.
const statusTimeout = time.Second

func (r *request) getStatus(ctx context.Context, _ *agentwire.Empty) (*agentwire.GetStatusReply, error) {
	if _, err := r.allow(policy.Status, "", r.self()); err != nil {
		return nil, err
	}
	a := r.agent
	reply := &agentwire.GetStatusReply{
		Version: a.Version, PID: os.Getpid(), Started: a.started, Mode: "user",
		Policy: a.policy.Load().Source(), Audit: a.AuditPath,
		Caller: wireCaller(r.conn.peer.Identity), Devices: []agentwire.Device{}, Notices: []agentwire.Notice{},
	}
	if a.System {
		reply.Mode = "system"
	}
	for _, b := range a.Backends {
		reply.Devices = append(reply.Devices, wireDevices(a.devices[b.Name()].shownStatus(ctx, statusTimeout))...)
	}
	for _, rec := range a.Store.List() {
		if r.shows(rec, false) {
			reply.Keys++
		}
	}
	if r.privileged() {
		reply.Notices = a.notices()
	}
	return reply, nil
}

func (a *Agent) notices() []agentwire.Notice {
	list := []agentwire.Notice{}
	for _, p := range a.Store.Problems() {
		list = append(list, agentwire.Notice{Message: "a key record is set aside: " + p.Path + ": " + p.Reason, Hint: "repair the file and reload the agent, or move it away; the agent did not change it", Problem: true})
	}
	if flaw := a.Audit.Fault(); flaw != nil {
		list = append(list, agentwire.Notice{Message: "the audit log: " + flaw.Error(), Hint: "the agent signs nothing that it cannot record: check " + a.AuditPath + " and its disk", Problem: true})
	}
	if a.policy.Load().AcceptRacyUnits {
		list = append(list, agentwire.Notice{Message: "the policy accepts units that the kernel cannot tell for certain (accept-racy-units)", Hint: "leave it out on Linux 6.5 and later"})
	}
	if a.Notices != nil {
		for _, n := range a.Notices() {
			list = append(list, agentwire.Notice{Message: n.Message, Hint: n.Hint, Problem: n.Problem})
		}
	}
	return list
}

// How many records TailAudit returns by default, and at most.
const (
	tailDefault = 20
	tailMax     = 500
)

func (r *request) tailAudit(ctx context.Context, p *agentwire.TailAuditParameters) (*agentwire.TailAuditReply, error) {
	n := p.Records
	setDefault(&n, tailDefault)
	if n < 1 || n > tailMax {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("1 to %d records", tailMax)}
	}
	if _, err := r.allow(policy.Audit, "", r.self()); err != nil {
		return nil, err
	}
	if err := r.agent.auditReads.acquire(ctx); err != nil {
		return nil, err
	}
	defer r.agent.auditReads.release()
	all, uid := r.privileged(), r.conn.peer.UID
	lines, err := r.agent.Audit.Tail(ctx, n, func(rec *audit.Record) bool { return all || rec.Caller != nil && rec.Caller.UID == uid })
	if err != nil {
		return nil, err
	}
	return &agentwire.TailAuditReply{Records: newest(lines)}, nil
}

// newest returns the last of lines that fit into one reply.
func newest(lines []string) []string {
	size := 1 << 10
	for i := len(lines) - 1; i >= 0; i-- {
		quoted, err := json.Marshal(lines[i])
		if size += len(quoted) + 1; err != nil || size > varlink.MaxMessage {
			return lines[i+1:]
		}
	}
	return append([]string{}, lines...)
}

// verifyAudit is for administrators of the agent, one at a time: it reads the whole
// log, which grows for ever.
func (r *request) verifyAudit(ctx context.Context, _ *agentwire.Empty) (*agentwire.VerifyAuditReply, error) {
	if _, err := r.allow(policy.Audit, "", r.self()); err != nil {
		return nil, err
	}
	if !r.privileged() {
		return nil, &fault.Error{Kind: fault.Denied, Message: "only root and the agent's own uid may verify the whole log", Hint: "`holdfast audit tail` shows your own records"}
	}
	if err := r.agent.auditReads.acquire(ctx); err != nil {
		return nil, err
	}
	defer r.agent.auditReads.release()
	s, err := r.agent.Audit.Verify(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: "the audit log was changed: " + err.Error(), Hint: "keep a copy of the file and inspect that line"}
	}
	return &agentwire.VerifyAuditReply{Records: int(s.Records), Head: s.Head}, nil
}

func wireCaller(id peer.Identity) agentwire.Caller {
	c := agentwire.Caller{UID: id.UID, User: id.User, GID: id.GID, Groups: id.Groups, PID: id.PID, Unit: id.Unit}
	if c.Groups == nil {
		c.Groups = []uint32{}
	}
	return c
}

// wireDevices returns a backend's device or, where it has units, each unit.
func wireDevices(s keys.Status) []agentwire.Device {
	if len(s.Units) == 0 {
		return []agentwire.Device{wireDevice(s)}
	}
	var list []agentwire.Device
	for _, unit := range s.Units {
		list = append(list, wireDevice(unit))
	}
	return list
}

func wireDevice(s keys.Status) agentwire.Device {
	d := agentwire.Device{
		Backend: s.Backend, Device: s.Device, State: string(s.State), Since: s.Since, Reason: s.Reason,
		LockedUntil: s.LockedUntil, Software: s.Software, TriesLeft: s.TriesLeft, Maker: s.Maker, Can: []agentwire.Capability{},
	}
	d.Hint, d.Next = wireStep(s.Hint, s.Next)
	for _, c := range s.Can {
		d.Can = append(d.Can, agentwire.Capability{Algorithm: string(c.Algorithm), RSABits: c.RSABits})
	}
	return d
}

// wireStep returns a next step as clients get it: for people, and for programs
// where they act on it.
func wireStep(hint string, next fault.Next) (string, *fault.Next) {
	if next.Do == "" {
		return hint, nil
	}
	if hint == "" {
		hint = next.String()
	}
	return hint, &next
}
