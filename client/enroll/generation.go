package enroll

import (
	"context"
	"fmt"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// nextKey returns the next generation of the key: a new key like it, or the one that
// an earlier try created and that got no certificate.
func (r *Renewal) nextKey(ctx context.Context) (*client.Key, error) {
	set, err := r.Options.Agent.Generations(ctx, r.Profile.Key)
	if err != nil {
		return nil, err
	}
	like := r.Key.Info()
	newest := set[0]
	if client.Generation(newest.Name) > client.Generation(like.Name) && len(newest.Chain) == 0 && alike(newest, like) {
		return r.Options.Agent.Key(ctx, newest.Name)
	}
	reason := ""
	switch {
	case like.PIN:
		reason = "has a PIN, and so would the next one"
	case like.Place != nil:
		reason = "is on a card, which wants its PIN before it makes the next one"
	}
	if reason != "" {
		return nil, &fault.Error{
			Kind: fault.PINRequired, Message: fmt.Sprintf("key %s %s", like.Name, reason),
			Hint: "renew with the same key: renewal.new-key: false in the profile",
		}
	}
	name := fmt.Sprintf("%s.%d", keys.SetOf(like.Name), client.Generation(newest.Name)+1)
	_, err = r.Options.CreateKey(ctx, agentwire.CreateKeyParameters{
		Name: name, Purpose: like.Purpose, Backend: like.Backend, Algorithm: like.Algorithm, RSABits: like.RSABits,
		Persistent: like.Persistent, TLS12: like.TLS12, Confirm: like.Confirm,
	})
	if err == nil && len(like.Servers) > 0 {
		_, err = r.Options.Agent.BindKey(ctx, name, like.Servers)
	}
	if err != nil {
		return nil, err
	}
	return r.Options.Agent.Key(ctx, name)
}

// alike reports whether a is a key that [Renewal.nextKey] would create for b.
func alike(a, b agentwire.Key) bool {
	return a.Purpose == b.Purpose && a.Backend == b.Backend && a.Algorithm == b.Algorithm && a.RSABits == b.RSABits &&
		a.TLS12 == b.TLS12 && a.Fault == "" && len(a.Servers) == len(b.Servers) && confirmsAlike(a.Confirm, b.Confirm)
}

func confirmsAlike(a, b *agentwire.Confirm) bool {
	return a == b || a != nil && b != nil && *a == *b
}
