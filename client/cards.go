package client

import (
	"context"

	"holdfast/internal/agentwire"
)

// ListCards describes the cards in the readers, and the readers whose card cannot be
// identified.
func (c *Client) ListCards(ctx context.Context) ([]Card, error) {
	var reply agentwire.ListCardsReply
	err := c.call(ctx, repeatable, agentwire.ListCards, agentwire.Empty{}, &reply)
	return reply.Cards, err
}

// SetUpCard replaces a card's PIN, PUK and management key. Like every method that
// takes a card's secrets it is never retried once the agent may have read it, since a
// wrong secret uses up a try. The caller wipes the secrets.
func (c *Client) SetUpCard(ctx context.Context, p SetUpCardParameters) error {
	return c.call(ctx, onceOnly, agentwire.SetUpCard, p, &agentwire.Empty{})
}

// ChangeCardPIN replaces a card's PIN.
func (c *Client) ChangeCardPIN(ctx context.Context, p ChangeCardParameters) error {
	return c.call(ctx, onceOnly, agentwire.ChangeCardPIN, p, &agentwire.Empty{})
}

// ChangeCardPUK replaces a card's PUK.
func (c *Client) ChangeCardPUK(ctx context.Context, p ChangeCardParameters) error {
	return c.call(ctx, onceOnly, agentwire.ChangeCardPUK, p, &agentwire.Empty{})
}

// UnblockCard sets a new PIN with the PUK when the old one is blocked or forgotten.
func (c *Client) UnblockCard(ctx context.Context, p UnblockCardParameters) error {
	return c.call(ctx, onceOnly, agentwire.UnblockCard, p, &agentwire.Empty{})
}

// InstallOnCard is [Client.InstallCertificate] for a key on a card. With the card's
// PIN the leaf is stored in the key's slot too, where other programs look for it. A card
// that does not keep its management key needs that key, and then no PIN.
func (c *Client) InstallOnCard(ctx context.Context, name string, chain [][]byte, pin, management []byte) (KeyInfo, error) {
	return c.keyCall(ctx, onceOnly, agentwire.InstallCertificate, agentwire.InstallCertificateParameters{Name: name, Chain: chain, PIN: pin, ManagementKey: management})
}
