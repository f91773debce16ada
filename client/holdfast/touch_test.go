package main

import (
	"strings"
	"testing"
	"time"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
)

const touchNote = "holdfast: note: touch card 7: key alice waits for it, for at most 15 s\n"

// waitsForTouch runs a command whose call of method waits until the user has been
// told to touch the card.
func waitsForTouch(t *testing.T, agent *clienttest.Agent, method string, announced bool, run func(c command, stderr *synced) int) {
	t.Helper()
	release := agent.Hold(method)
	defer release()
	var stderr synced
	ended := make(chan int, 1)
	go func() { ended <- run(command{socket: agent.Socket}, &stderr) }()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(stderr.String(), touchNote); time.Sleep(time.Millisecond) {
		if announced && len(agent.Calls(method)) > 0 && agent.Announce(agentwire.WatchReply{What: "touch", Name: "alice", State: "wanted"}) > 0 {
			announced = false
		}
		if time.Now().After(deadline) {
			t.Fatalf("the person is told %q", stderr.String())
		}
	}
	release()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
}

func TestTouchForRequest(t *testing.T) {
	agent, _, _ := withAliceOnCard(t)
	waitsForTouch(t, agent, agentwire.SignCertificateRequest, false, func(c command, stderr *synced) int {
		return c.runTo(&synced{}, stderr, "certificate", "request", "alice", "--subject", "CN=alice")
	})
}

func TestTouchForConnection(t *testing.T) {
	r := newRig(t)
	r.agent.Change("alice", func(k *agentwire.Key) { k.Place = &agentwire.Place{Card: 7, Slot: "9a", TouchPolicy: "cached"} })
	address := r.start(t)
	waitsForTouch(t, r.agent, agentwire.SignTLSClient, false, func(c command, stderr *synced) int {
		return c.runTo(&synced{}, stderr, "tls", "connect", "--key", "alice", "--ca", r.caFile, address)
	})
}

// A new key signs once, and touches are wanted for that too.
func TestTouchForNewKey(t *testing.T) {
	agent, _ := withCards(t, clienttest.NewCard(7))
	waitsForTouch(t, agent, agentwire.CreateKey, true, func(c command, stderr *synced) int {
		c.stdin = clienttest.CardPIN
		return c.runTo(&synced{}, stderr, "key", "create", "alice", "--purpose", "tls-client", "--backend", "piv", "--touch-policy", "always", "--pin-fd", "0")
	})
}
