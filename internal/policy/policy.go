// Package policy decides whether a peer may do something with a key of the agent,
// or get a credential of the broker. A policy is one YAML file of rules, read from
// top to bottom; the first rule that matches decides, and a request that no rule
// matches is denied.
//
// Start at [Parse], or [ParseBrokerFile], and at [Policy.Decide]. Deciding is a pure
// function of the policy and the [Query]: it reads no file and calls no service.
//
// # The file
//
//	version: 1
//	rules:
//	  - name: people own their keys
//	    allow: [use, manage]
//	    anyone: true
//	    owner: self
//
//	  - name: the kubelet signs in with the node's key
//	    allow: [sign-tls-client]
//	    units: [kubelet.service]
//	    keys: [node-client]
//	    owner: machine
//
// A rule either allows or denies a list of operations (see [Operations]), or
// "use", "manage" or "all". It matches when each of its conditions matches, and a
// list matches when one of its words does. The conditions:
//
//   - users, uids: the user that connected. A user is matched by uid and name
//     together, so that a new user with an old uid inherits nothing. Where several names
//     share a uid, only the first one in /etc/passwd matches.
//   - groups, gids: the primary or a supplementary group at the time of connecting.
//   - units: the system unit, by its whole name. Kernels before 6.5 cannot
//     report it for certain: there a policy with units also says
//     accept-racy-units: true.
//   - anyone: true, every user but root: an allow rule names root.
//   - keys: names of key sets, each perhaps with one "*" at its end.
//   - owner: self (the uid and user of the caller made the key), machine
//     (the owner is uid 0), any, or a uid.
//   - socket: use or admin. Without it both.
//
// An allow rule names callers and, unless its operations concern no key, the owner
// of the keys. The operations list-cards, manage-cards, status and audit concern no key:
// rules with keys or owner do not match them. The operations seal and unseal concern
// a secret, which the caller names as keys are named and owns: to rules with keys or
// owner it is a key of the caller's.
//
// A rule about sign-tls-client and unlock may also look at the process for which a
// broker asks. The broker reports that process, and nothing verifies it. The rule
// still has to name the broker's user or unit:
//
//   - for-users, for-uids, for-units: as users, uids and units, of the process
//     that the peer reports. To an allow rule, a peer without a report does not
//     match.
//
// Rules that deny decide doubtful cases the other way: a user matches by uid or by
// name, anyone includes root, and a peer that reports no process, or no unit,
// matches every one.
//
// # The broker's file
//
// The policy of a broker has the same form and the same callers. Its operations
// are proxy, certificate and token, a credential of a profile in that mode, or
// "credentials" for the three; and status. In place of keys, owner, socket and the
// words that start with for- its rules have profiles: names of profiles, each
// perhaps with one "*" at its end, which an allow rule about credentials must give.
// Operations and words of an agent's policy are errors there, and the other way
// round.
//
// Unknown and repeated words, wrong types, names without a user or group, and
// the overflow uid and gid (65534) are errors, each with file and line; a policy
// with an error is no policy.
//
// # What it does not protect against
//
// A policy is only as good as the identity that it is given: it cannot tell programs
// of one uid apart. No rule names programs by their path, because a process can
// replace its program after it has been identified.
package policy

import (
	"fmt"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/peer"
)

// A Query asks whether a peer may do something.
type Query struct {
	Peer      peer.Identity
	Reported  *Reported // the process for which the peer says that it asks; nil when it names none
	Admin     bool      // the peer came in over the admin socket
	Operation Operation // one operation, not a group of them
	Key       string    // the key's name in the request; rules look at its set. Empty for operations that concern no key
	Owner     uint32    // the key's owner; for create and adopt, the uid that will own it
	OwnerUser string    // the name that Owner had when the key was made; empty when it had none
	Profile   string    // the profile's name, for the operations of a broker
}

// A Decision is an answer and its source. It is for the audit log, for `holdfast
// policy check` and for administrators; a denied peer learns only that it is denied.
type Decision struct {
	Allowed bool
	Rule    string // the rule's name, "#2" for a second rule without one, "default" when no rule matches
	Where   string // file:line of the rule, or "built-in"; empty with "default"
	Reason  string // one fact
}

// A Policy is a list of rules that passed every check. It does not change and is
// safe for concurrent use.
type Policy struct {
	// AcceptRacyUnits makes rules by unit apply where the kernel cannot report the
	// unit for certain (see peer.Identity.UnitRacy).
	AcceptRacyUnits bool

	source string
	rules  []rule
}

// Source returns the name that the policy was parsed under, or "built-in".
func (p *Policy) Source() string { return p.source }

// Rules returns how many rules the policy has.
func (p *Policy) Rules() int { return len(p.rules) }

// NeedsUnits reports whether a rule names units. An agent on a kernel without
// SO_PEERPIDFD refuses such a policy unless AcceptRacyUnits.
func (p *Policy) NeedsUnits() bool {
	for _, r := range p.rules {
		if len(r.units) > 0 {
			return true
		}
	}
	return false
}

// Enforceable returns nil when a daemon can enforce the policy, and an unsupported
// [fault.Error] otherwise. With exact, the kernel reports a caller's unit for certain
// (see peer.HasPeerPidfd).
func (p *Policy) Enforceable(exact bool) error {
	if exact || p.AcceptRacyUnits || !p.NeedsUnits() {
		return nil
	}
	return &fault.Error{
		Kind:    fault.Unsupported,
		Message: p.source + ": rules by unit need a kernel with SO_PEERPIDFD (Linux 6.5)",
		Hint:    "use rules by user, or accept the race with accept-racy-units: true",
	}
}

// Decide returns the answer of the first rule that matches q, and otherwise a
// denial. An unmapped uid, an invalid key name and an unknown operation are denied
// whatever the rules say.
func (p *Policy) Decide(q Query) Decision {
	op := setOf(q.Operation)
	if op == 0 {
		return denied("there is no such operation")
	}
	if outsider(q.Peer.UID) {
		return denied("the peer's uid does not exist here")
	}
	if keyed&op != 0 && keys.CheckName(q.Key) != nil {
		return denied("that is not a key name")
	}
	if credentials&op != 0 && !isProfile(q.Profile) {
		return denied("that is not a profile name")
	}
	for i := range p.rules {
		r := &p.rules[i]
		if r.operations&op == 0 || !r.matchesPeer(q.Peer, q.Admin, p.AcceptRacyUnits) || !r.matchesReported(q.Reported) || !r.matchesObject(op, q) {
			continue
		}
		return r.decision(fmt.Sprintf("%s %s", r.verb(), q.Operation))
	}
	return denied("no rule matches")
}

// Admits reports whether any rule could allow this peer anything. The server calls
// it right after accept, so that it rejects a peer without rights before it reads a
// byte. When Admits denies, Decide denies every query of this peer; when Admits
// allows, Rule and Where name the first rule that might allow one.
func (p *Policy) Admits(id peer.Identity, admin bool) Decision {
	if outsider(id.UID) {
		return denied("the peer's uid does not exist here")
	}
	open := everything
	for i := range p.rules {
		r := &p.rules[i]
		if !r.matchesPeer(id, admin, p.AcceptRacyUnits) {
			continue
		}
		if r.allow && r.reach()&open != 0 {
			return r.decision("may allow something")
		}
		if !r.allow {
			open &^= r.closes()
		}
	}
	return denied("no rule allows this peer anything")
}

func denied(reason string) Decision { return Decision{Rule: "default", Reason: reason} }

// outsider reports whether the kernel uses uid in place of unmapped uids. Package
// peer rejects them already; a rule must never decide about them.
func outsider(uid uint32) bool { return uid == peer.OverflowUID || uid == ^uint32(0) }
