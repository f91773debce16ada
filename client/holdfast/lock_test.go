package main

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

func TestLock(t *testing.T) {
	agent, c := withLockedAlice(t)
	c.run("lock").want(t, 0, "none of your keys was unlocked\n")
	c.run("lock", "alice").want(t, 0, "alice is locked\n")
	until := time.Now().Add(time.Hour)
	for _, name := range []string{"bob", "carol", "dave"} {
		agent.AddKey(name, keys.TLSClient, keys.ES256)
	}
	for _, name := range []string{"alice", "bob", "carol"} {
		agent.Change(name, func(k *agentwire.Key) { k.Owner.UID, k.UnlockedUntil = uint32(os.Getuid()), &until })
	}
	agent.Change("carol", func(k *agentwire.Key) { k.Owner.UID++ })
	c.run("lock").want(t, 0, "locked: alice, bob\n")
	agent.Fail(agentwire.ListKeys, &fault.Error{Kind: fault.Busy, Message: "busy"})
	c.run("lock").want(t, 0, "all of your keys are locked\n")
	for i, want := range []string{"", "alice", "", ""} {
		var sent agentwire.LockKeysParameters
		check(t, json.Unmarshal(agent.Calls(agentwire.LockKeys)[i].Parameters, &sent))
		if sent.Name != want {
			t.Errorf("call %d: got %+v on the wire, want %q", i, sent, want)
		}
	}
	agent.Fail(agentwire.LockKeys, &fault.Error{Kind: fault.Busy, Message: "busy"})
	c.run("lock").want(t, 1, "busy")
	c.run("lock", "alice").want(t, 1, "busy")
}
