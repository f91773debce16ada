package client_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"holdfast/client"
	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

func TestCards(t *testing.T) {
	agent := clienttest.Start(t)
	agent.Cards = []agentwire.Card{clienttest.NewFactoryCard(7)}
	c, ctx := dial(t, agent.Socket), context.Background()
	pin, puk := []byte(clienttest.CardPIN), []byte(clienttest.CardPUK)
	if cards, err := c.ListCards(ctx); err != nil || len(cards) != 1 || cards[0].Serial != 7 || !*cards[0].DefaultPIN {
		t.Errorf("ListCards: got %+v, %v", cards, err)
	}
	if err := c.SetUpCard(ctx, agentwire.SetUpCardParameters{Card: 7, PIN: pin, PUK: puk}); err != nil {
		t.Errorf("SetUpCard: %v", err)
	}
	if err := c.ChangeCardPIN(ctx, agentwire.ChangeCardParameters{Card: 7, Old: pin, New: []byte("975310")}); err != nil {
		t.Errorf("ChangeCardPIN: %v", err)
	}
	if err := c.ChangeCardPUK(ctx, agentwire.ChangeCardParameters{Card: 7, Old: puk, New: []byte("97531086")}); err != nil {
		t.Errorf("ChangeCardPUK: %v", err)
	}
	if err := c.UnblockCard(ctx, agentwire.UnblockCardParameters{Card: 7, PUK: puk, PIN: pin}); err != nil {
		t.Errorf("UnblockCard: %v", err)
	}
	if err := c.UnblockCard(ctx, agentwire.UnblockCardParameters{Card: 7, PUK: pin, PIN: pin}); fault.KindOf(err) != fault.PINRequired {
		t.Errorf("UnblockCard with a wrong PUK: got %v, want pin-required", err)
	}
	var sent agentwire.ChangeCardParameters
	if err := json.Unmarshal(agent.Calls(agentwire.ChangeCardPUK)[0].Parameters, &sent); err != nil || string(sent.New) != "97531086" || sent.Card != 7 {
		t.Errorf("got %+v on the wire, %v", sent, err)
	}
}

// A call that spends a PIN try is sent once, whatever its outcome.
func TestSecretsAreSentOnce(t *testing.T) {
	pin := []byte(clienttest.CardPIN)
	onCard := agentwire.CreateKeyParameters{Name: "alice", Purpose: "tls-client", PIN: pin, OnCard: &agentwire.OnCard{Card: 7}}
	change := agentwire.ChangeCardParameters{Card: 7, Old: pin, New: pin}
	for method, call := range map[string]func(context.Context, *client.Client) error{
		agentwire.CreateKey: func(ctx context.Context, c *client.Client) error { _, err := c.CreateKey(ctx, onCard); return err },
		agentwire.SetUpCard: func(ctx context.Context, c *client.Client) error {
			return c.SetUpCard(ctx, agentwire.SetUpCardParameters{Card: 7, PIN: pin, PUK: pin})
		},
		agentwire.ChangeCardPIN: func(ctx context.Context, c *client.Client) error { return c.ChangeCardPIN(ctx, change) },
		agentwire.ChangeCardPUK: func(ctx context.Context, c *client.Client) error { return c.ChangeCardPUK(ctx, change) },
		agentwire.UnblockCard: func(ctx context.Context, c *client.Client) error {
			return c.UnblockCard(ctx, agentwire.UnblockCardParameters{Card: 7, PIN: pin, PUK: pin})
		},
		agentwire.InstallCertificate: func(ctx context.Context, c *client.Client) error {
			_, err := c.InstallOnCard(ctx, "bob", [][]byte{{1}}, pin, nil)
			return err
		},
	} {
		agent := clienttest.Start(t)
		agent.Cards = []agentwire.Card{clienttest.NewCard(7)}
		agent.AddKey("bob", keys.TLSClient, keys.ES256)
		agent.Lose(method, 1)
		if err := call(context.Background(), dial(t, agent.Socket)); err == nil {
			t.Errorf("%s: the reply was lost, and nobody said so", method)
		}
		if n := len(agent.Calls(method)); n != 1 {
			t.Errorf("%s: sent %d times, want once", method, n)
		}
	}
}

// Without a PIN the agent asks, and knows for whom.
func TestUnlockByAsking(t *testing.T) {
	agent := clienttest.Start(t)
	agent.Person = true
	agent.AddKey("alice", keys.TLSClient, keys.ES256)
	c := dial(t, agent.Socket)
	who := agentwire.Reported{UID: 1000, PID: 4711, Start: 99}
	ctx := client.OnBehalfOf(context.Background(), who)
	if u, err := c.Unlock(ctx, agentwire.UnlockKeyParameters{Name: "alice"}); err != nil || time.Until(u.UnlockedUntil) <= 0 {
		t.Fatalf("got %v, %v", u, err)
	}
	other := agentwire.Reported{UID: 1, PID: 2, Start: 3}
	if _, err := c.Unlock(ctx, agentwire.UnlockKeyParameters{Name: "alice", OnBehalfOf: &other}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []agentwire.Reported{who, other} {
		var sent agentwire.UnlockKeyParameters
		if err := json.Unmarshal(agent.Calls(agentwire.UnlockKey)[i].Parameters, &sent); err != nil || sent.OnBehalfOf == nil || *sent.OnBehalfOf != want || sent.PIN != nil {
			t.Errorf("got %+v on the wire, %v, want it for %+v", sent, err, want)
		}
	}
}
