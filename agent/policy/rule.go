package policy

import (
	"slices"
	"strings"

	"holdfast/agent/keys"
	"holdfast/agent/peer"
)

// A rule as it was parsed. An empty list means that the rule does not look at
// what the list is about.
type rule struct {
	name  string // its name, or its number with a '#' before it
	where string
	allow bool

	operations operationSet
	anyone     bool
	uids       []uint32
	users      []user
	gids       []uint32
	groups     []uint32
	units      []string
	socket     socket
	keys       []pattern
	owner      owner
}

// A user is a name and the uid that it had when the policy was read.
type user struct {
	name string
	uid  uint32
}

type socket int

const (
	eitherSocket socket = iota
	useSocket
	adminSocket
)

// An owner says whose keys a rule is about.
type owner struct {
	kind ownerKind
	uid  uint32 // with ownerUID
}

type ownerKind int

const (
	ownerUnsaid ownerKind = iota
	ownerAny
	ownerSelf
	ownerUID
)

// A pattern is a key set's name, or with prefix the beginning of one.
type pattern struct {
	text   string
	prefix bool
}

func (p pattern) matches(set string) bool {
	if p.prefix {
		return strings.HasPrefix(set, p.text)
	}
	return set == p.text
}

func (r *rule) verb() string {
	if r.allow {
		return "allows"
	}
	return "denies"
}

func (r *rule) decision(reason string) Decision {
	return Decision{Allowed: r.allow, Rule: r.name, Where: r.where, Reason: "the rule " + reason}
}

// matchesPeer reports whether the rule is about this peer on this socket. Every
// case is a reason why it is not, so that a condition without a case here could
// only make a rule match too much: the matrix test looks for that.
func (r *rule) matchesPeer(id peer.Identity, admin, acceptRacyUnits bool) bool {
	switch {
	case r.socket == useSocket && admin, r.socket == adminSocket && !admin:
		return false
	case r.anyone && r.allow && id.UID == 0:
		return false
	case len(r.uids) > 0 && !slices.Contains(r.uids, id.UID):
		return false
	case len(r.users) > 0 && !r.matchesUser(id):
		return false
	case len(r.gids) > 0 && !inGroup(id, r.gids):
		return false
	case len(r.groups) > 0 && !inGroup(id, r.groups):
		return false
	case len(r.units) > 0 && !r.matchesUnit(id, acceptRacyUnits):
		return false
	}
	return true
}

// matchesUser wants uid and name to agree before it allows, and is content with
// one of them to deny.
func (r *rule) matchesUser(id peer.Identity) bool {
	for _, u := range r.users {
		uid, name := u.uid == id.UID, u.name == id.User
		if uid && name || !r.allow && (uid || name) {
			return true
		}
	}
	return false
}

// matchesUnit compares whole names: a beginning of one, or a slice, would also
// name units that somebody else may start.
func (r *rule) matchesUnit(id peer.Identity, acceptRacy bool) bool {
	if id.Unit == "" || r.allow && id.UnitRacy && !acceptRacy {
		return false
	}
	return slices.Contains(r.units, id.Unit)
}

// inGroup takes the primary group and the supplementary ones for the same thing,
// as file permissions do.
func inGroup(id peer.Identity, gids []uint32) bool {
	if slices.Contains(gids, id.GID) {
		return true
	}
	return slices.ContainsFunc(id.Groups, func(g uint32) bool { return slices.Contains(gids, g) })
}

// matchesKey reports whether the rule is about the key that op is asked for.
func (r *rule) matchesKey(op operationSet, q Query) bool {
	if op&keyless != 0 {
		return !r.aboutKeys()
	}
	set := keys.SetOf(q.Key)
	if len(r.keys) > 0 && !slices.ContainsFunc(r.keys, func(p pattern) bool { return p.matches(set) }) {
		return false
	}
	return r.matchesOwner(q)
}

// matchesOwner compares uid and user for self, because a uid can be given to
// somebody else after the key was made. A key whose owner had no name is known
// by uid alone. To deny, the uid is enough.
func (r *rule) matchesOwner(q Query) bool {
	switch r.owner.kind {
	case ownerSelf:
		sameUser := q.OwnerUser == "" || q.OwnerUser == q.Peer.User
		return q.Owner == q.Peer.UID && (sameUser || !r.allow)
	case ownerUID:
		return q.Owner == r.owner.uid
	}
	return true
}

// aboutKeys reports whether the rule looks at keys at all.
func (r *rule) aboutKeys() bool { return len(r.keys) > 0 || r.owner.kind != ownerUnsaid }

// reach returns the operations that the rule can match.
func (r *rule) reach() operationSet {
	if r.aboutKeys() {
		return r.operations & keyed
	}
	return r.operations
}

// closes returns the operations that the rule matches for every key.
func (r *rule) closes() operationSet {
	if r.aboutKeys() {
		return 0
	}
	return r.operations
}
