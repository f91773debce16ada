package policy

import "slices"

// Reported is the process for which a peer says that it asks. Nothing verifies it: it
// can restrict what a rule allows the peer, and never extend it.
type Reported struct {
	UID  uint32
	User string // the name of UID on this machine; empty when it has none
	Unit string // empty when the peer did not say
}

// reported are the operations that a peer can request on behalf of a process.
var reported = setOf(SignTLSClient, Unlock)

// aboutReported reports whether the rule looks at the reported process.
func (r *rule) aboutReported() bool {
	return len(r.forUIDs)+len(r.forUsers)+len(r.forUnits) > 0
}

// matchesReported reports whether the rule is about the reported process. A process
// that is not reported could be any: a rule that denies matches it, and one that
// allows does not.
func (r *rule) matchesReported(who *Reported) bool {
	if !r.aboutReported() {
		return true
	}
	if who == nil {
		return !r.allow
	}
	switch {
	case len(r.forUIDs) > 0 && !slices.Contains(r.forUIDs, who.UID):
		return false
	case len(r.forUsers) > 0 && !r.matchesUser(r.forUsers, who.UID, who.User):
		return false
	case len(r.forUnits) > 0 && who.Unit == "":
		return !r.allow
	case len(r.forUnits) > 0 && !slices.Contains(r.forUnits, who.Unit):
		return false
	}
	return true
}
