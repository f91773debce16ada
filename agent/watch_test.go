package agent

import (
	"os"
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
)

// A lock of everything goes to the callers whose keys it locks and to administrators of
// the agent, even if policy does not let them see the status.
func TestLockEventsGoToTheUsersOfTheKeys(t *testing.T) {
	a := &Agent{uid: uint32(os.Getuid())}
	a.policy.Store(nobodyMayAsk(t))
	alice, bob := uint32(1000), uint32(1001)
	for _, c := range []struct {
		about string
		event event
		uid   uint32
		want  bool
	}{
		{"alice's, alice", event{what: "lock", user: &alice}, alice, true},
		{"alice's, bob", event{what: "lock", user: &alice}, bob, false},
		{"alice's, root", event{what: "lock", user: &alice}, 0, true},
		{"alice's, the agent's own user", event{what: "lock", user: &alice}, a.uid, true},
		{"everybody's, bob", event{what: "lock"}, bob, true},
		{"a device, bob", event{what: "device", name: "tpm"}, bob, false},
	} {
		r := &request{agent: a, conn: &connection{peer: &peer.Peer{Identity: peer.Identity{UID: c.uid}}}}
		if got := r.maySee(c.event); got != c.want {
			t.Errorf("%s: may hear %t, want %t", c.about, got, c.want)
		}
	}
}

func nobodyMayAsk(t *testing.T) *policy.Policy {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte("version: 1\nrules:\n- deny: [all]\n  anyone: true\n"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Events that a watcher may not see do not have it dropped, events that it may see do.
func TestWatchersAreDroppedForTheirOwnAlone(t *testing.T) {
	var w watchers
	w.init()
	mine := keyID{Owner: 1000, Name: "a"}
	alice := w.subscribe(func(e event) bool { return e.key != nil && *e.key == mine })
	theirs := keyID{Owner: 1001, Name: "b"}
	for range 10 * watchBacklog {
		w.publish(event{what: "lock", key: &theirs})
	}
	if len(alice.events) != 0 || alice.dropped {
		t.Fatalf("%d events of others wait, dropped %t", len(alice.events), alice.dropped)
	}
	for range watchBacklog + 1 {
		w.publish(event{what: "lock", key: &mine})
	}
	if !alice.dropped || w.number() != 0 {
		t.Errorf("dropped %t, %d watch", alice.dropped, w.number())
	}
}

// An unlock that a lock cancelled had no wrong PIN, whether the agent or the device
// noticed the lock: there is no second prompt, and no remembered PIN is forgotten.
func TestLockedMeanwhileIsNoWrongPIN(t *testing.T) {
	for err, want := range map[error]string{
		&fault.Error{Kind: fault.PINRequired, Err: errCancelled}:                                  "",
		&fault.Error{Kind: fault.Busy, Message: "the key was locked while it was being unlocked"}: "",
		&unfinished{&fault.Error{Kind: fault.PINRequired}}:                                        "",
		&fault.Error{Kind: fault.PINRequired, Message: "the PIN is wrong"}:                        "wrong PIN",
		&notAPIN{&fault.Error{Kind: fault.BadRequest, Message: "no PIN"}}:                         "no PIN",
		&fault.Error{Kind: fault.BadRequest, Message: "the slot is taken"}:                        "",
	} {
		if got := retryReason(err); got != want {
			t.Errorf("%v: asked again for %q, want %q", err, got, want)
		}
	}
}
