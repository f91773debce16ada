package enroll

import (
	"context"
	"crypto/x509"
	"time"

	"holdfast/client"
)

// keepExpired is how long a generation is kept after its certificate expired.
const keepExpired = 24 * time.Hour

// prune deletes old generations of a key. Without a current key it deletes none: they
// may be needed to find out why nothing signs in.
func (d *Run) prune(ctx context.Context, r *Renewal) {
	if r.Key == nil {
		return
	}
	set, err := r.Options.Agent.Generations(ctx, r.Profile.Key)
	if err != nil {
		d.fail(r, err)
		return
	}
	for _, k := range set {
		if client.Generation(k.Name) >= client.Generation(r.Key.Info().Name) || !expiredLongAgo(k.Chain) {
			continue
		}
		if err := r.Options.Agent.DeleteKey(ctx, k.Name); err != nil {
			d.fail(r, err)
			continue
		}
		d.Deleted(r, k.Name)
	}
}

func expiredLongAgo(chain [][]byte) bool {
	if len(chain) == 0 {
		return false
	}
	leaf, err := x509.ParseCertificate(chain[0])
	return err == nil && time.Since(leaf.NotAfter) > keepExpired
}
