package client_test

import (
	"context"
	"crypto/x509"
	"testing"
	"time"

	"holdfast/client"
	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

// touchy starts an agent whose key alice is on a card and wants a touch, and
// returns a client that tells of it.
func touchy(t *testing.T, change func(*agentwire.Key)) (*clienttest.Agent, *client.Client, chan string) {
	t.Helper()
	agent := clienttest.Start(t)
	agent.AddKey("alice", keys.TLSClient, keys.ES256)
	agent.Change("alice", func(k *agentwire.Key) {
		k.Place = &agentwire.Place{Card: 7, Slot: "9a", PINPolicy: "never", TouchPolicy: "always"}
		change(k)
	})
	told := make(chan string, 10)
	c, err := client.Dial(context.Background(), &client.Options{Socket: agent.Socket, Touch: func(k agentwire.Key) { told <- k.Name }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return agent, c, told
}

// sign makes a request, which ends on the channel.
func sign(t *testing.T, c *client.Client) chan error {
	t.Helper()
	k, err := c.Key(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := k.CertificateRequest(&x509.CertificateRequest{})
		ended <- err
	}()
	return ended
}

func wantTold(t *testing.T, told chan string) {
	t.Helper()
	select {
	case name := <-told:
		if name != "alice" {
			t.Errorf("told of %q, want alice", name)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("nobody was told")
	}
}

// A key that is silent for a second waits for its touch.
func TestTouchOfSilentKey(t *testing.T) {
	agent, c, told := touchy(t, func(*agentwire.Key) {})
	release := agent.Hold(agentwire.SignCertificateRequest)
	defer release()
	began := time.Now()
	ended := sign(t, c)
	wantTold(t, told)
	if waited := time.Since(began); waited < time.Second {
		t.Errorf("told after %s already", waited)
	}
	release()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := len(agent.Calls(agentwire.Watch)); n != 0 {
		t.Errorf("watched %d times for what is plain", n)
	}
}

// A key that may also wait for its PIN or a confirmation waits for a touch when the
// agent says so.
func TestTouchThatTheAgentTells(t *testing.T) {
	for name, change := range map[string]func(*agentwire.Key){
		"locked":    func(k *agentwire.Key) { k.PIN = true },
		"confirmed": func(k *agentwire.Key) { k.Confirm = &agentwire.Confirm{When: "always"} },
	} {
		t.Run(name, func(t *testing.T) {
			agent, c, told := touchy(t, change)
			release := agent.Hold(agentwire.SignCertificateRequest)
			defer release()
			ended := sign(t, c)
			for agent.Announce(agentwire.WatchReply{What: "key"}) == 0 {
				time.Sleep(time.Millisecond) // until it watches
			}
			agent.Announce(agentwire.WatchReply{What: "touch", Name: "alice", State: "wanted"})
			agent.Announce(agentwire.WatchReply{What: "touch", Name: "alice", State: "done"})
			agent.Announce(agentwire.WatchReply{What: "touch", Name: "bob", State: "wanted"})
			select {
			case <-told:
				t.Error("told of a touch that was done at once, or of another key's")
			case <-time.After(1200 * time.Millisecond):
			}
			agent.Announce(agentwire.WatchReply{What: "touch", Name: "alice", State: "wanted"})
			wantTold(t, told)
			release()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// There is no notice for a key that is quick or needs no touch.
func TestNoTouch(t *testing.T) {
	_, c, told := touchy(t, func(*agentwire.Key) {})
	if err := <-sign(t, c); err != nil {
		t.Fatal(err)
	}
	agent, slow, alsoTold := touchy(t, func(k *agentwire.Key) { k.Place.TouchPolicy = "never" })
	release := agent.Hold(agentwire.SignCertificateRequest)
	ended := sign(t, slow)
	time.Sleep(1200 * time.Millisecond) // longer than a second, which is what is tested
	release()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if len(told) != 0 || len(alsoTold) != 0 {
		t.Errorf("told %d and %d times of no touch", len(told), len(alsoTold))
	}
}

// A call that waits is reported, but not while the agent may be asking a user.
func TestWaiting(t *testing.T) {
	agent := clienttest.Start(t)
	agent.AddKey("alice", keys.TLSClient, keys.ES256)
	dial := func() (*client.Client, chan time.Duration) {
		waited := make(chan time.Duration, 10)
		c, err := client.Dial(t.Context(), &client.Options{Socket: agent.Socket, Waiting: func(d time.Duration) { waited <- d }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c, waited
	}
	c, waited := dial()
	other, otherWaited := dial()
	release := agent.Hold(agentwire.SignCertificateRequest)
	ended := sign(t, c)
	if d := <-waited; d < time.Second {
		t.Errorf("reported after %v", d)
	}
	release()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	agent.Change("alice", func(k *agentwire.Key) { k.PIN = true })
	release = agent.Hold(agentwire.SignCertificateRequest)
	ended = sign(t, c)
	for len(agent.Calls(agentwire.SignCertificateRequest)) < 2 {
		time.Sleep(time.Millisecond)
	}
	later := agent.Hold(agentwire.GetStatus)
	asked := make(chan error, 1)
	go func() { _, err := other.Status(t.Context()); asked <- err }()
	<-otherWaited // of a call that began later
	if len(waited) > 0 {
		t.Error("a signature that may ask for a PIN was reported")
	}
	later()
	release()
	<-ended
	<-asked
}
