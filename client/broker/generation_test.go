package broker_test

import (
	"context"
	"strings"
	"testing"

	"holdfast/client/profile"
	"holdfast/internal/agentwire"
)

// A profile that names one generation of a set loses its connections with it.
func TestGenerationIsLost(t *testing.T) {
	r := newRig(t, func(r *rig) {
		r.key(agentwire.CreateKeyParameters{Name: "alice.1"})
		r.certify("alice.1")
		p := r.profile("first")
		p.Key = "alice.1"
		r.options.Profiles = []*profile.Profile{p}
	})
	line, watch := r.get("first", r.ticket("first"), "/watch")
	if !strings.HasPrefix(line, "alice.1 ") {
		t.Fatalf("got %s", line)
	}
	if err := r.client.DeleteKey(context.Background(), "alice.1"); err != nil {
		t.Fatal(err)
	}
	if !cut(watch) {
		t.Errorf("the watch goes on without its key\n%s", r.broker.Log())
	}
}
