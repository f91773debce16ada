package policy

import "slices"

// Reported is for whom a peer says that it asks. Nobody has verified it: it can
// take from what a rule allows the peer, and never add to it.
type Reported struct {
	UID  uint32
	User string // the name of UID on this machine; empty when it has none
	Unit string // empty when the peer did not say
}

// reported are the operations that can be asked for on behalf of somebody.
var reported = setOf(SignTLSClient, Unlock)

// aboutReported reports whether the rule looks at for whom the peer asks.
func (r *rule) aboutReported() bool {
	return len(r.forUIDs)+len(r.forUsers)+len(r.forUnits) > 0
}

// matchesReported reports whether the rule is about whom the peer reports. What is
// not told might be anybody: that is no reason to allow, and one to deny.
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
