package client

import (
	"context"

	"holdfast/internal/agentwire"
)

// ListCards describes the cards in the readers, and the readers of which no card
// can be named.
func (c *Client) ListCards(ctx context.Context) ([]agentwire.Card, error) {
	var reply agentwire.ListCardsReply
	err := c.call(ctx, repeatable, agentwire.ListCards, agentwire.Empty{}, &reply)
	return reply.Cards, err
}

// SetUpCard replaces a card's PIN, PUK and management key. Like the other methods
// that take a card's secrets it is never repeated by itself once the agent may have
// read it, since a wrong one costs a try. The caller wipes them.
func (c *Client) SetUpCard(ctx context.Context, p agentwire.SetUpCardParameters) error {
	return c.call(ctx, onceOnly, agentwire.SetUpCard, p, &agentwire.Empty{})
}

// ChangeCardPIN replaces a card's PIN.
func (c *Client) ChangeCardPIN(ctx context.Context, p agentwire.ChangeCardParameters) error {
	return c.call(ctx, onceOnly, agentwire.ChangeCardPIN, p, &agentwire.Empty{})
}

// ChangeCardPUK replaces a card's PUK.
func (c *Client) ChangeCardPUK(ctx context.Context, p agentwire.ChangeCardParameters) error {
	return c.call(ctx, onceOnly, agentwire.ChangeCardPUK, p, &agentwire.Empty{})
}

// UnblockCard gives a card whose PIN is blocked or forgotten a new one.
func (c *Client) UnblockCard(ctx context.Context, p agentwire.UnblockCardParameters) error {
	return c.call(ctx, onceOnly, agentwire.UnblockCard, p, &agentwire.Empty{})
}

// InstallOnCard is [Client.InstallCertificate] for a key on a card, whose PIN lets
// the leaf be stored in the key's slot too: other programs look for it there.
func (c *Client) InstallOnCard(ctx context.Context, name string, chain [][]byte, pin []byte) (agentwire.Key, error) {
	return c.keyCall(ctx, onceOnly, agentwire.InstallCertificate, agentwire.InstallCertificateParameters{Name: name, Chain: chain, PIN: pin})
}
