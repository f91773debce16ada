package broker

import (
	"bytes"
	"crypto/x509"
	"time"

	"holdfast/agent/keys"
	agentwire "holdfast/agent/wire"
)

// snapshot notes what is of interest of each key.
func snapshot(list []agentwire.Key) map[string]map[string]keyBefore {
	sets := map[string]map[string]keyBefore{}
	for _, k := range list {
		set := keys.SetOf(k.Name)
		if sets[set] == nil {
			sets[set] = map[string]keyBefore{}
		}
		noted := keyBefore{public: k.PublicKey, fault: k.Fault != "", pin: k.PIN}
		if len(k.Chain) > 0 {
			noted.leaf = k.Chain[0]
			if leaf, err := x509.ParseCertificate(k.Chain[0]); err == nil {
				noted.until = leaf.NotAfter
			}
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
		case there && !bytes.Equal(k.leaf, old.leaf):
			what = renewed
		}
	}
	for name := range after {
		if _, known := before[name]; !known {
			what = renewed
		}
	}
	return what
}
