package broker

import (
	"testing"
	"time"
)

func TestCompare(t *testing.T) {
	now := time.Now()
	later, past := now.Add(time.Hour), now.Add(-time.Hour)
	k := func(public, leaf string, until time.Time) keyBefore {
		return keyBefore{public: []byte(public), leaf: []byte(leaf), until: until}
	}
	faulty := k("a", "1", later)
	faulty.fault = true
	type set = map[string]keyBefore
	for name, test := range map[string]struct {
		before, after set
		want          change
	}{
		"nothing":                       {set{"k": k("a", "1", later)}, set{"k": k("a", "1", later)}, same},
		"new certificate":               {set{"k": k("a", "1", later)}, set{"k": k("a", "2", later)}, renewed},
		"new generation":                {set{"k": k("a", "1", later)}, set{"k": k("a", "1", later), "k.1": k("b", "2", later)}, renewed},
		"other key of that name":        {set{"k": k("a", "1", later)}, set{"k": k("b", "2", later)}, gone},
		"deleted":                       {set{"k": k("a", "1", later)}, set{}, gone},
		"an old generation deleted":     {set{"k": k("a", "1", past), "k.1": k("b", "2", later)}, set{"k.1": k("b", "2", later)}, same},
		"a generation in use deleted":   {set{"k": k("a", "1", later), "k.1": k("b", "2", later)}, set{"k.1": k("b", "2", later)}, gone},
		"faulty now":                    {set{"k": k("a", "1", later)}, set{"k": faulty}, gone},
		"faulty before":                 {set{"k": faulty}, set{}, same},
		"deleted without a certificate": {set{"k": k("a", "", later)}, set{}, same},
	} {
		if got := compare(test.before, test.after, now); got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
}
