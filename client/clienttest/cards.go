package clienttest

import (
	"fmt"

	"holdfast/agent/keys"
	"holdfast/agent/wire"
)

// The PIN and PUK of every card of the stand-in.
const (
	CardPIN = "246810"
	CardPUK = "13572468"
)

var errWrongPIN = &keys.Error{Kind: keys.PINRequired, Message: "the PIN is wrong"}

// NewCard returns a card that has been set up, with nothing in its slots.
func NewCard(serial uint32) wire.Card {
	three, no, yes := 3, false, true
	return wire.Card{
		Serial: serial, Reader: fmt.Sprintf("Yubico YubiKey CCID %02d 00", serial%10), Firmware: "5.7.1", State: string(keys.StateReady),
		PINTries: &three, PUKTries: &three, DefaultPIN: &no, DefaultPUK: &no, DefaultManagement: &no,
		ProtectedManagement: true, Attests: &yes, Notes: []wire.Notice{}, Slots: []wire.CardSlot{},
	}
}

// NewFactoryCard returns a card as it is sold.
func NewFactoryCard(serial uint32) wire.Card {
	c, yes := NewCard(serial), true
	c.DefaultPIN, c.DefaultPUK, c.DefaultManagement, c.ProtectedManagement = &yes, &yes, &yes, false
	return c
}

func (a *Agent) listCards(wire.Empty) (wire.ListCardsReply, error) {
	return wire.ListCardsReply{Cards: append([]wire.Card{}, a.Cards...)}, nil
}

// card finds a card by its serial number, or the only one.
func (a *Agent) card(serial uint32) (*wire.Card, error) {
	for i := range a.Cards {
		if c := &a.Cards[i]; c.Serial == serial || serial == 0 && len(a.Cards) == 1 {
			return c, nil
		}
	}
	return nil, &keys.Error{Kind: keys.DeviceAbsent, Message: fmt.Sprintf("card %d is in no reader", serial)}
}

func (a *Agent) setUpCard(p wire.SetUpCardParameters) (wire.Empty, error) {
	c, err := a.card(p.Card)
	if err == nil && len(p.OldPIN) > 0 && string(p.OldPIN) != CardPIN {
		err = errWrongPIN
	}
	if err == nil {
		no := false
		c.DefaultPIN, c.DefaultPUK, c.DefaultManagement, c.ProtectedManagement = &no, &no, &no, true
	}
	return wire.Empty{}, err
}

// changeCard changes a secret, whose value so far must be present.
func (a *Agent) changeCard(p wire.ChangeCardParameters, present string) (wire.Empty, error) {
	_, err := a.card(p.Card)
	if err == nil && string(p.Old) != present {
		err = errWrongPIN
	}
	return wire.Empty{}, err
}

func (a *Agent) unblockCard(p wire.UnblockCardParameters) (wire.Empty, error) {
	return a.changeCard(wire.ChangeCardParameters{Card: p.Card, Old: p.PUK, New: p.PIN}, CardPUK)
}

// place puts a new key on a card.
func (a *Agent) place(k *key, p wire.CreateKeyParameters) error {
	c, err := a.card(p.OnCard.Card)
	if err != nil {
		return err
	}
	at := wire.Place{
		Card: c.Serial, Slot: p.OnCard.Slot, PINPolicy: p.OnCard.PINPolicy, TouchPolicy: p.OnCard.TouchPolicy, Attested: !p.OnCard.AllowUnattested,
	}
	if at.Slot == "" {
		at.Slot = "9a"
	}
	if at.PINPolicy == "" {
		at.PINPolicy = "once"
	}
	if at.TouchPolicy == "" {
		at.TouchPolicy = "never"
	}
	k.Backend, k.Place, k.PIN = "piv", &at, at.PINPolicy != "never"
	return nil
}
