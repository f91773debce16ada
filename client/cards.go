package client

import (
	"context"

	"holdfast/agent/wire"
)

// ListCards describes the cards in the readers, and the readers of which no card
// can be named.
func (c *Client) ListCards(ctx context.Context) ([]wire.Card, error) {
	var reply wire.ListCardsReply
	err := c.call(ctx, repeatable, wire.ListCards, wire.Empty{}, &reply)
	return reply.Cards, err
}

// SetUpCard replaces a card's PIN, PUK and management key. Like the other methods
// that take a card's secrets it is never repeated by itself once the agent may have
// read it, since a wrong one costs a try. The caller wipes them.
func (c *Client) SetUpCard(ctx context.Context, p wire.SetUpCardParameters) error {
	return c.call(ctx, onceOnly, wire.SetUpCard, p, &wire.Empty{})
}

// ChangeCardPIN replaces a card's PIN.
func (c *Client) ChangeCardPIN(ctx context.Context, p wire.ChangeCardParameters) error {
	return c.call(ctx, onceOnly, wire.ChangeCardPIN, p, &wire.Empty{})
}

// ChangeCardPUK replaces a card's PUK.
func (c *Client) ChangeCardPUK(ctx context.Context, p wire.ChangeCardParameters) error {
	return c.call(ctx, onceOnly, wire.ChangeCardPUK, p, &wire.Empty{})
}

// UnblockCard gives a card whose PIN is blocked or forgotten a new one.
func (c *Client) UnblockCard(ctx context.Context, p wire.UnblockCardParameters) error {
	return c.call(ctx, onceOnly, wire.UnblockCard, p, &wire.Empty{})
}

// InstallOnCard is [Client.InstallCertificate] for a key on a card, whose PIN lets
// the leaf be stored in the key's slot too: other programs look for it there.
func (c *Client) InstallOnCard(ctx context.Context, name string, chain [][]byte, pin []byte) (wire.Key, error) {
	return c.keyCall(ctx, onceOnly, wire.InstallCertificate, wire.InstallCertificateParameters{Name: name, Chain: chain, PIN: pin})
}
