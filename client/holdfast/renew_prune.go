package main

import (
	"context"
	"crypto/x509"
	"time"

	"holdfast/client"
)

// keepExpired is how long a generation is kept after its certificate expired.
const keepExpired = 24 * time.Hour

// pruneAll deletes old generations. It returns how many could not be.
func (a *app) pruneAll(ctx context.Context, all []*renewing) (failures int) {
	for _, r := range all {
		if r.key == nil { // nothing signs in; what is there may be wanted to find out why
			continue
		}
		set, err := r.agent.Generations(ctx, r.profile.Key)
		if err != nil {
			failures += r.fail(err)
			continue
		}
		for _, k := range set {
			if client.Generation(k.Name) >= client.Generation(r.key.Info().Name) || !expiredLongAgo(k.Chain) {
				continue
			}
			if err := r.agent.DeleteKey(ctx, k.Name); err != nil {
				failures += r.fail(err)
				continue
			}
			a.note("%s: key %s deleted, its certificate expired more than a day ago", r.profile.Name, k.Name)
		}
	}
	return failures
}

func expiredLongAgo(chain [][]byte) bool {
	if len(chain) == 0 {
		return false
	}
	leaf, err := x509.ParseCertificate(chain[0])
	return err == nil && time.Since(leaf.NotAfter) > keepExpired
}
