package broker

import (
	"bytes"
	"crypto/x509"
	"time"

	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

// snapshot notes what is of interest of each key. Of two with one name it is the
// one of uid, which signs in.
func snapshot(list []agentwire.Key, uid uint32) map[string]map[string]keyBefore {
	sets := map[string]map[string]keyBefore{}
	for _, k := range list {
		set := keys.SetOf(k.Name)
		if sets[set] == nil {
			sets[set] = map[string]keyBefore{}
		}
		if _, taken := sets[set][k.Name]; taken && k.Owner.UID != uid {
			continue
		}
		noted := keyBefore{public: k.PublicKey, fault: k.Fault != "", pin: k.PIN, each: eachTime(k), yes: ownYes(k)}
		if len(k.Chain) > 0 {
			noted.leaf = k.Chain[0]
			if leaf, err := x509.ParseCertificate(k.Chain[0]); err == nil {
				noted.until = leaf.NotAfter
			}
		}
		if k.UnlockedUntil != nil {
			noted.unlocked = *k.UnlockedUntil
		}
		sets[set][k.Name] = noted
	}
	return sets
}

// What became of the keys of a set.
type change int

const (
	same    change = iota
	renewed        // there is a new certificate, or a new generation
	lapsed         // the time that a key was unlocked for has passed
	locked         // a key was locked before that
	gone           // a key that could sign in is gone, is another one or cannot be used
)

// compare says what became of a set. A generation whose certificate has expired
// may go without a word.
func compare(before, after map[string]keyBefore, now time.Time) change {
	what := same
	for name, old := range before {
		k, there := after[name]
		usable := len(old.leaf) > 0 && now.Before(old.until) && !old.fault
		switch {
		case usable && (!there || !bytes.Equal(k.public, old.public) || k.fault):
			return gone
		case !old.unlocked.IsZero() && k.unlocked.IsZero() && now.Before(old.unlocked):
			what = locked
		case !old.unlocked.IsZero() && k.unlocked.IsZero():
			what = max(what, lapsed)
		case there && !bytes.Equal(k.leaf, old.leaf):
			what = max(what, renewed)
		}
	}
	for name := range after {
		if _, known := before[name]; !known {
			what = max(what, renewed)
		}
	}
	return what
}
