package enroll

import (
	"context"
	"strings"
	"testing"

	"holdfast/client"
	"holdfast/client/clienttest"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func dial(t *testing.T, agent *clienttest.Agent) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), &client.Options{Socket: agent.Socket})
	check(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// renewalOf returns a renewal of the key alice, as change leaves it.
func renewalOf(t *testing.T, agent *clienttest.Agent, change func(*agentwire.Key)) *Renewal {
	t.Helper()
	agent.AddKey("alice", keys.TLSClient, keys.ES256)
	agent.Change("alice", change)
	c := dial(t, agent)
	k, err := c.Key(t.Context(), "alice")
	check(t, err)
	o := &Options{Agent: c, CreateKey: func(ctx context.Context, p agentwire.CreateKeyParameters) (agentwire.Key, error) {
		return c.CreateKey(ctx, p)
	}}
	return &Renewal{Options: o, Profile: &profile.Profile{Name: "prod", Key: "alice"}, Key: k}
}

// An unattended renewal creates no key that needs a PIN.
func TestNextKeyNeedsNoPIN(t *testing.T) {
	tests := map[string]func(*agentwire.Key){
		"on a card": func(k *agentwire.Key) { k.Place = &agentwire.Place{Card: 7} },
		"has a PIN": func(k *agentwire.Key) { k.PIN = true },
	}
	for want, change := range tests {
		agent := clienttest.Start(t)
		r := renewalOf(t, agent, change)
		if _, err := r.nextKey(t.Context()); fault.KindOf(err) != fault.PINRequired || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want pin-required", want, err)
		}
		if n := len(agent.Calls(agentwire.CreateKey)); n != 0 {
			t.Errorf("%s: %d keys were created", want, n)
		}
	}
}

// The next generation of a key asks for the same confirmation as the one before.
func TestNextKeyConfirms(t *testing.T) {
	once := agentwire.Confirm{When: "once"}
	same, other := once, agentwire.Confirm{When: "always"}
	if !confirmsAlike(nil, nil) || confirmsAlike(&once, nil) || confirmsAlike(&once, &other) || !confirmsAlike(&once, &same) {
		t.Error("keys with a confirmation are mistaken for others")
	}
	r := renewalOf(t, clienttest.Start(t), func(k *agentwire.Key) { k.Confirm = &once })
	if next, err := r.nextKey(t.Context()); err != nil || next.Info().Name != "alice.1" || next.Info().Confirm == nil || *next.Info().Confirm != once {
		t.Errorf("got %+v, %v", next, err)
	}
}
