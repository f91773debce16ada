package agent

import (
	"testing"

	"holdfast/agent/store"
)

// Requests at the same time cannot exceed a user's share together.
func TestShareOfKeysBeingMade(t *testing.T) {
	const alice, bob = 1000, 1001
	var c claims
	stored := []store.Record{{Name: "a", Owner: store.Owner{UID: alice}, Persistent: true}}
	records := func() []store.Record { return stored }
	release, ok := c.share(alice, true, records)
	if !ok {
		t.Fatal("the second persistent key is rejected")
	}
	if _, ok := c.share(alice, true, records); ok {
		t.Error("a third persistent key is accepted while the second is being made")
	}
	for _, uid := range []uint32{alice, bob} {
		if _, ok := c.share(uid, uid == bob, records); !ok {
			t.Errorf("another key of uid %d is rejected", uid)
		}
	}
	release()
	if _, ok := c.share(alice, true, records); !ok {
		t.Error("rejected although the second was not made")
	}
	for range maxKeys {
		c.share(alice, false, records)
	}
	if got := c.making[alice].all + len(stored); got != maxKeys {
		t.Errorf("a user got %d keys, want %d", got, maxKeys)
	}
}
