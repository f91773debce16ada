package main

import (
	"context"
	"fmt"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// nextKey returns the next generation of the key: one like it, or the one that a
// try before this has made and that got no certificate.
func (r *renewing) nextKey(ctx context.Context) (*client.Key, error) {
	set, err := r.agent.Generations(ctx, r.profile.Key)
	if err != nil {
		return nil, err
	}
	like := r.key.Info()
	newest := set[0]
	if client.Generation(newest.Name) > client.Generation(like.Name) && len(newest.Chain) == 0 && alike(newest, like) {
		return r.agent.Key(ctx, newest.Name)
	}
	if like.PIN {
		return nil, &fault.Error{
			Kind: fault.PINRequired, Message: fmt.Sprintf("key %s has a PIN, and so would the next one", like.Name),
			Hint: "renew with the same key: renewal.new-key: false in the profile",
		}
	}
	if like.Place != nil {
		return nil, &fault.Error{
			Kind: fault.PINRequired, Message: fmt.Sprintf("key %s is on a card, which wants its PIN before it makes the next one", like.Name),
			Hint: "renew with the same key: renewal.new-key: false in the profile",
		}
	}
	name := fmt.Sprintf("%s.%d", keys.SetOf(like.Name), client.Generation(newest.Name)+1)
	_, err = r.app.makeKey(ctx, r.agent, agentwire.CreateKeyParameters{
		Name: name, Purpose: like.Purpose, Backend: like.Backend, Algorithm: like.Algorithm, RSABits: like.RSABits,
		Persistent: like.Persistent, TLS12: like.TLS12, Confirm: like.Confirm,
	})
	if err == nil && len(like.Servers) > 0 {
		_, err = r.agent.BindKey(ctx, name, like.Servers)
	}
	if err != nil {
		return nil, err
	}
	return r.agent.Key(ctx, name)
}

// alike reports whether a key is what [renewing.nextKey] would make.
func alike(a, b agentwire.Key) bool {
	return a.Purpose == b.Purpose && a.Backend == b.Backend && a.Algorithm == b.Algorithm && a.RSABits == b.RSABits &&
		a.TLS12 == b.TLS12 && a.Fault == "" && len(a.Servers) == len(b.Servers) && confirmsAlike(a.Confirm, b.Confirm)
}

func confirmsAlike(a, b *agentwire.Confirm) bool {
	return a == b || a != nil && b != nil && *a == *b
}
