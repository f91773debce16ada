package client

import (
	"context"
	"crypto/rand"

	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
)

// Seal has the agent seal a secret of 1 to 128 bytes to its device, under a name that
// the caller chooses by the rules for key names. A name that is taken is a bad-request
// [*Error] unless replace is set; the old secret goes only once the new one is stored.
// A retry after a lost connection does not seal twice. The caller wipes secret.
func (c *Client) Seal(ctx context.Context, name string, secret []byte, replace bool) error {
	p := agentwire.SealParameters{Name: name, Secret: secret, Replace: replace, RequestID: rand.Text()}
	return c.call(ctx, repeatable, agentwire.Seal, p, &agentwire.Empty{})
}

// Unseal returns the secret that the caller sealed under a name; the caller wipes it.
// A name that is not the caller's and one that policy denies give the same denied
// [*Error]. After identity-changed and key-lost the device cannot unseal the secret
// again.
func (c *Client) Unseal(ctx context.Context, name string) ([]byte, error) {
	var reply agentwire.UnsealReply
	if err := c.call(ctx, repeatable, agentwire.Unseal, agentwire.NameParameters{Name: name}, &reply); err != nil {
		return nil, err
	}
	return reply.Secret, keys.CheckSecret(reply.Secret)
}

// DeleteSealed deletes a sealed secret, which cannot be undone.
func (c *Client) DeleteSealed(ctx context.Context, name string) error {
	return c.call(ctx, onceOnly, agentwire.DeleteSealed, agentwire.NameParameters{Name: name}, &agentwire.Empty{})
}
