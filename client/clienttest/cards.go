package clienttest

import (
	"cmp"
	"fmt"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// The PIN and PUK of every card of the stand-in.
const (
	CardPIN = "246810"
	CardPUK = "13572468"
)

var errWrongPIN = &fault.Error{Kind: fault.PINRequired, Message: "the PIN is wrong"}

// NewCard returns a card that has been set up, with nothing in its slots.
func NewCard(serial uint32) agentwire.Card {
	three, no, yes := 3, false, true
	return agentwire.Card{
		Serial: serial, Reader: fmt.Sprintf("Yubico YubiKey CCID %02d 00", serial%10), Firmware: "5.7.1", State: string(keys.StateReady),
		PINTries: &three, PUKTries: &three, DefaultPIN: &no, DefaultPUK: &no, DefaultManagement: &no,
		ProtectedManagement: true, Attests: &yes, Notes: []agentwire.Notice{}, Slots: []agentwire.CardSlot{},
	}
}

// NewFactoryCard returns a new card, with the factory's PIN, PUK and management key.
func NewFactoryCard(serial uint32) agentwire.Card {
	c, yes := NewCard(serial), true
	c.DefaultPIN, c.DefaultPUK, c.DefaultManagement, c.ProtectedManagement = &yes, &yes, &yes, false
	return c
}

func (a *Agent) listCards(agentwire.Empty) (agentwire.ListCardsReply, error) {
	return agentwire.ListCardsReply{Cards: append([]agentwire.Card{}, a.Cards...)}, nil
}

// card finds a card by its serial number, or the only one.
func (a *Agent) card(serial uint32) (*agentwire.Card, error) {
	for i := range a.Cards {
		if c := &a.Cards[i]; c.Serial == serial || serial == 0 && len(a.Cards) == 1 {
			return c, nil
		}
	}
	return nil, &fault.Error{Kind: fault.DeviceAbsent, Message: fmt.Sprintf("card %d is in no reader", serial)}
}

func (a *Agent) setUpCard(p agentwire.SetUpCardParameters) (agentwire.Empty, error) {
	c, err := a.card(p.Card)
	if err == nil && len(p.OldPIN) > 0 && string(p.OldPIN) != CardPIN {
		err = errWrongPIN
	}
	if err == nil {
		no := false
		c.DefaultPIN, c.DefaultPUK, c.DefaultManagement, c.ProtectedManagement = &no, &no, &no, true
	}
	return agentwire.Empty{}, err
}

// changeCard changes a secret whose current value is present.
func (a *Agent) changeCard(p agentwire.ChangeCardParameters, present string) (agentwire.Empty, error) {
	_, err := a.card(p.Card)
	if err == nil && string(p.Old) != present {
		err = errWrongPIN
	}
	return agentwire.Empty{}, err
}

func (a *Agent) unblockCard(p agentwire.UnblockCardParameters) (agentwire.Empty, error) {
	return a.changeCard(agentwire.ChangeCardParameters{Card: p.Card, Old: p.PUK, New: p.PIN}, CardPUK)
}

// place puts a new key on a card.
func (a *Agent) place(k *key, p agentwire.CreateKeyParameters) error {
	c, err := a.card(p.OnCard.Card)
	if err != nil {
		return err
	}
	at := agentwire.Place{
		Card: c.Serial, Slot: cmp.Or(p.OnCard.Slot, "9a"), PINPolicy: cmp.Or(p.OnCard.PINPolicy, "once"),
		TouchPolicy: cmp.Or(p.OnCard.TouchPolicy, "never"), Attested: !p.OnCard.AllowUnattested,
	}
	k.Backend, k.Place, k.PIN = "piv", &at, at.PINPolicy != "never"
	return nil
}
