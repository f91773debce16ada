package policy

import (
	"slices"
	"strings"

	"holdfast/internal/keys"
	"holdfast/internal/peer"
)

// A rule is a parsed rule. It ignores the property of an empty list.
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
	forUIDs    []uint32
	forUsers   []user
	forUnits   []string
	socket     socket
	keys       []pattern
	owner      owner
	profiles   []pattern
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

// An owner is the owner of the keys that a rule is about.
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

// A pattern is the name of a key set or a profile, or with prefix the beginning of
// one.
type pattern struct {
	text   string
	prefix bool
}

func (p pattern) matches(name string) bool {
	if p.prefix {
		return strings.HasPrefix(name, p.text)
	}
	return name == p.text
}

// matchesName reports whether a list of patterns is empty or has one for name.
func matchesName(list []pattern, name string) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(p pattern) bool { return p.matches(name) })
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
// case is a reason why it is not. A condition without a case would make a rule match
// too much: the matrix test looks for that.
func (r *rule) matchesPeer(id peer.Identity, admin, acceptRacyUnits bool) bool {
	switch {
	case r.socket == useSocket && admin, r.socket == adminSocket && !admin:
		return false
	case r.anyone && r.allow && id.UID == 0:
		return false
	case len(r.uids) > 0 && !slices.Contains(r.uids, id.UID):
		return false
	case len(r.users) > 0 && !r.matchesUser(r.users, id.UID, id.User):
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

// matchesUser compares uid and name: a rule that allows needs both to match, a rule
// that denies needs one.
func (r *rule) matchesUser(users []user, uid uint32, name string) bool {
	for _, u := range users {
		sameUID, sameName := u.uid == uid, u.name == name
		if sameUID && sameName || !r.allow && (sameUID || sameName) {
			return true
		}
	}
	return false
}

// matchesUnit compares whole names: the beginning of one, or a slice, would also
// match units that other users may start.
func (r *rule) matchesUnit(id peer.Identity, acceptRacy bool) bool {
	if id.Unit == "" || r.allow && id.UnitRacy && !acceptRacy {
		return false
	}
	return slices.Contains(r.units, id.Unit)
}

// inGroup treats the primary group and the supplementary ones alike, as file
// permissions do.
func inGroup(id peer.Identity, gids []uint32) bool {
	if slices.Contains(gids, id.GID) {
		return true
	}
	return slices.ContainsFunc(id.Groups, func(g uint32) bool { return slices.Contains(gids, g) })
}

// matchesObject reports whether the rule is about the key or the profile of the
// request.
func (r *rule) matchesObject(op operationSet, q Query) bool {
	switch {
	case op&keyless != 0:
		return !r.aboutObjects()
	case op&credentials != 0:
		return matchesName(r.profiles, q.Profile)
	}
	return matchesName(r.keys, keys.SetOf(q.Key)) && r.matchesOwner(q)
}

// matchesOwner compares uid and user for self, because a uid can be given to
// another user after the key was made. For a key whose owner had no name it compares
// only the uid. A rule that denies needs only the uid.
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

// aboutObjects reports whether the rule looks at keys or profiles at all.
func (r *rule) aboutObjects() bool {
	return len(r.keys) > 0 || r.owner.kind != ownerUnsaid || len(r.profiles) > 0
}

// reach returns the operations that the rule can match.
func (r *rule) reach() operationSet {
	if r.aboutObjects() {
		return r.operations &^ keyless
	}
	return r.operations
}

// closes returns the operations that the rule matches for every key or profile,
// whichever user it is for.
func (r *rule) closes() operationSet {
	if r.aboutObjects() || r.aboutReported() {
		return 0
	}
	return r.operations
}
