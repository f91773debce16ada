package main

import (
	"context"
	"crypto"
	"crypto/sha256"
	"errors"
	"os"
	"time"

	piv "github.com/go-piv/piv-go/v2/piv"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
	"holdfast/test/bench/measure"
	"holdfast/test/daemon"
	"holdfast/test/pivcard"
)

// The codes of a card that is set up.
const cardPIN, cardPUK = "246813", "97531864"

// cardRounds are fewer than usual: in each the card changes hands twice, and the
// agent lets go of it only after two seconds.
const cardRounds = 9

// cardOverhead is what a signature through the agent, its child and the client
// takes longer than one by piv-go in this process, with the same key on the same
// card.
func cardOverhead(b *bench) {
	reader := pivcard.Start(b, 1)
	card := reader.NewCard(pivcard.Options{})
	b.Check("card", reader.Insert(card))
	ours, public := cardKey(b, reader, card)
	b.Check("environment", os.Setenv("PCSCLITE_CSOCK_NAME", reader.Socket()))
	b.Say("signing with a card")
	const perRound = 40
	var added []float64
	for round := range measure.WarmUps + cardRounds {
		var p50 [2]time.Duration
		for _, i := range measure.Turn(round) {
			if i == 0 {
				b.Check("the agent's first", ours(0)) // opens the card
				p50[i] = measure.Median(b.Timed(perRound, ours))
				continue
			}
			p50[i] = cardDirect(b, reader.ReaderOf(card), public, perRound)
		}
		if round >= measure.WarmUps {
			added = append(added, float64(p50[0]-p50[1])/float64(time.Microsecond))
		}
	}
	b.AtMost("card_overhead_us", measure.Median(added), "us", 3000)
}

// cardKey starts an agent and makes a key on the card. It returns the side that
// signs with it.
func cardKey(b *bench, reader *pivcard.Rig, card *pivcard.Card) (side, crypto.PublicKey) {
	a := daemon.Start(b, daemon.Options{Cards: &daemon.Cards{Socket: reader.Socket(), Roots: reader.RootFile()}})
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	c, err := client.Dial(ctx, &client.Options{Socket: a.Socket})
	b.Check("agent", err)
	b.Cleanup(func() { c.Close() })
	b.Check("set up", c.SetUpCard(ctx, agentwire.SetUpCardParameters{Card: card.Serial, PIN: []byte(cardPIN), PUK: []byte(cardPUK)}))
	_, err = c.CreateKey(ctx, agentwire.CreateKeyParameters{
		Name: keyName, Purpose: string(keys.TLSClient), Backend: "piv", PIN: []byte(cardPIN),
		OnCard: &agentwire.OnCard{Slot: "9a", PINPolicy: "never"},
	})
	b.Check("create key", err)
	k, err := c.Key(context.Background(), keyName)
	b.Check("key", err)
	return signer(k), k.Public()
}

// cardDirect opens the card when the agent has let go of it, and returns the
// median of n signatures.
func cardDirect(b *bench, reader string, public crypto.PublicKey, n int) time.Duration {
	var card *piv.YubiKey
	for deadline := time.Now().Add(testTimeout); card == nil; time.Sleep(10 * time.Millisecond) {
		var err error
		if card, err = piv.Open(reader); err != nil && time.Now().After(deadline) {
			b.Check("piv-go: open", err)
		}
	}
	defer card.Close()
	private, err := card.PrivateKey(piv.SlotAuthentication, public, piv.KeyAuth{PINPolicy: piv.PINPolicyNever})
	b.Check("piv-go: key", err)
	signer, ok := private.(crypto.Signer)
	if !ok {
		b.Check("piv-go: key", errors.New("it does not sign"))
	}
	digest := sha256.Sum256(clientMessage())
	sign := func(int) error {
		_, err := signer.Sign(nil, digest[:], crypto.SHA256)
		return err
	}
	b.Check("piv-go: first", sign(0))
	return measure.Median(b.Timed(n, sign))
}
