package broker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/client/profile"
	"holdfast/internal/agentwire"
)

func TestCompare(t *testing.T) {
	now := time.Now()
	later, past := now.Add(time.Hour), now.Add(-time.Hour)
	k := func(public, leaf string, until time.Time) keyState {
		return keyState{public: []byte(public), leaf: []byte(leaf), expires: until}
	}
	faulty := k("a", "1", later)
	faulty.fault = true
	open, was := k("a", "1", later), k("a", "1", later)
	open.unlocked, was.unlocked = later, past
	type set = map[string]keyState
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
		"still unlocked":                {set{"k": open}, set{"k": open}, same},
		"locked":                        {set{"k": open}, set{"k": k("a", "1", later)}, locked},
		"locked, and another renewed":   {set{"k": open, "k.1": k("b", "1", later)}, set{"k": k("a", "1", later), "k.1": k("b", "2", later)}, locked},
		"unlocked for so long only":     {set{"k": was}, set{"k": k("a", "1", later)}, lapsed},
		"unlocked anew":                 {set{"k": was}, set{"k": open}, same},
		"deleted while it was unlocked": {set{"k": open}, set{}, gone},
		"deleted without a certificate": {set{"k": k("a", "", later)}, set{}, same},
	} {
		if got := compare(test.before, test.after, now); got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
}

// A profile may name a generation, and users may have a key of the machine's name.
func TestWhoseKeyIsWatched(t *testing.T) {
	list := []agentwire.Key{
		{Name: "k", PublicKey: []byte("own"), Owner: agentwire.Owner{UID: 7}}, {Name: "k", PublicKey: []byte("machine")},
		{Name: "k.1", PublicKey: []byte("machine")}, {Name: "k.1", PublicKey: []byte("own"), Owner: agentwire.Owner{UID: 7}},
	}
	for name, k := range snapshot(list, 7)["k"] {
		if string(k.public) != "own" {
			t.Errorf("%s: the key of the %s is watched", name, k.public)
		}
	}
	c := &profileCache{profiles: map[string]*profile.Profile{
		"set": {Name: "set", Key: "k"}, "one": {Name: "one", Key: "k.1"}, "other": {Name: "other", Key: "l"},
	}}
	c.dir = t.TempDir()
	c.stamps, c.read = c.stampAll(), time.Now()
	issued := &issued{profiles: c}
	for name, want := range map[string]string{"k": "one set", "k.1": "one set", "k.2": "set", "l": "other", "l.1": "other", "": "one other set", "m": ""} {
		var got []string
		for _, p := range issued.profilesOf(name) {
			got = append(got, p.Name)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%q signs in for %q, want %s", name, got, want)
		}
	}
}
