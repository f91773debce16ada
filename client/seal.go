package client

import (
	"context"
	"crypto/rand"

	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

// Seal has the agent seal a secret of 1 to 128 bytes to its device, under a name
// of the caller's own (the rules for key names). A name that is taken is a
// bad-request [fault.Error] unless replace is set, and then only a secret that was
// stored takes the place of the old one. It may be repeated after a lost
// connection without sealing twice. The caller wipes secret.
func (c *Client) Seal(ctx context.Context, name string, secret []byte, replace bool) error {
	p := agentwire.SealParameters{Name: name, Secret: secret, Replace: replace, RequestID: rand.Text()}
	return c.call(ctx, repeatable, agentwire.Seal, p, &agentwire.Empty{})
}

// Unseal returns what the caller sealed under a name, for the caller to wipe. A
// name that is not the caller's, or that policy does not let the caller unseal,
// is a denied [fault.Error] either way; identity-changed and key-lost say that
// the device will not open the secret again.
func (c *Client) Unseal(ctx context.Context, name string) ([]byte, error) {
	var reply agentwire.UnsealReply
	if err := c.call(ctx, repeatable, agentwire.Unseal, agentwire.NameParameters{Name: name}, &reply); err != nil {
		return nil, err
	}
	return reply.Secret, keys.CheckSecret(reply.Secret)
}

// DeleteSealed forgets a sealed secret. There is no way back.
func (c *Client) DeleteSealed(ctx context.Context, name string) error {
	return c.call(ctx, onceOnly, agentwire.DeleteSealed, agentwire.NameParameters{Name: name}, &agentwire.Empty{})
}
