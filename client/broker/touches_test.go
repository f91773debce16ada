package broker

import (
	"testing"
	"time"

	"holdfast/client/profile"
	"holdfast/internal/agentwire"
)

func TestTouches(t *testing.T) {
	var waiting touches
	for _, step := range []struct{ key, state, set, want string }{
		{"alice.2", "wanted", "alice", "alice.2"},
		{"bob", "wanted", "bob", "bob"},
		{"bob", "wanted", "alice.2", "alice.2"},
		{"alice.2", "wanted", "alice.3", ""},
		{"alice.2", "done", "alice", ""},
		{"alice.2", "done", "bob", "bob"},
		{"bob", "done", "bob", ""},
	} {
		waiting.set(step.key, step.state == "wanted")
		if got := waiting.of(step.set); got != step.want {
			t.Errorf("%s %s: %q waits for %q, want %q", step.key, step.state, step.set, got, step.want)
		}
	}
	waiting.set("alice", true)
	waiting.clear()
	if got := waiting.of("alice"); got != "" {
		t.Errorf("the agent is not watched any more, and %q waits", got)
	}
}

// Keys that take a user each time get a connection for each request.
func TestAlone(t *testing.T) {
	place := func(touch string) *agentwire.Place { return &agentwire.Place{TouchPolicy: touch} }
	confirm := func(when string) *agentwire.Confirm { return &agentwire.Confirm{When: when} }
	for name, test := range map[string]struct {
		key  agentwire.Key
		want bool
	}{
		"plain":               {agentwire.Key{}, false},
		"a card, no touch":    {agentwire.Key{Place: place("never")}, false},
		"a touch each time":   {agentwire.Key{Place: place("always")}, true},
		"a touch in a while":  {agentwire.Key{Place: place("cached")}, false},
		"a yes each time":     {agentwire.Key{Confirm: confirm("always")}, true},
		"a yes for a process": {agentwire.Key{Confirm: confirm("process")}, true},
		"a yes once":          {agentwire.Key{Confirm: confirm("once")}, false},
	} {
		test.key.Name = "k.1"
		var known agentKeys
		known.sets = snapshot([]agentwire.Key{{Name: "k", Created: time.Now()}, test.key}, 0)
		for profiled, want := range map[string]bool{"k": test.want, "k.1": test.want, "k.2": false, "other": false} {
			p := &profile.Profile{Key: profiled}
			if got := known.alone(p); got != want {
				t.Errorf("%s: a profile with key %s: got %v, want %v", name, profiled, got, want)
			}
			refused := want && test.key.Confirm != nil // a touch is for one signature, not for one process
			if err := known.mayShare(p); (err != nil) != refused {
				t.Errorf("%s: minting with key %s: %v, refused: %v", name, profiled, err, refused)
			}
		}
	}
}
