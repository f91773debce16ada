// Package enroll plans when a certificate is renewed: after a set fraction of
// its lifetime, and where a profile wants that, a little earlier, so that
// machines that were enrolled together do not all ask at once. Start at [Moment].
package enroll

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"time"

	"holdfast/client/profile"
)

// Lifetime returns how long a certificate is valid, as the signer counted it.
func Lifetime(leaf *x509.Certificate) time.Duration { return leaf.NotAfter.Sub(leaf.NotBefore) }

// Moment returns when a certificate is to be renewed: after r's fraction of its
// lifetime, and with jitter at most that fraction of the lifetime earlier. How
// much earlier depends on seed alone, so the moment is the same however often it
// is asked for; an empty seed switches jitter off.
func Moment(leaf *x509.Certificate, r profile.Renewal, seed string) time.Time {
	fraction := r.Fraction
	if fraction == 0 {
		fraction = profile.DefaultFraction
	}
	if seed != "" {
		fraction -= r.Jitter * share(seed)
	}
	return leaf.NotBefore.Add(time.Duration(max(fraction, 0) * float64(Lifetime(leaf))))
}

// share spreads seeds evenly over the numbers from 0 to less than 1.
func share(seed string) float64 {
	sum := sha256.Sum256([]byte("holdfast renewal\x00" + seed))
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / (1 << 53)
}

// Seed is what tells one key of one machine from others; it is a secret of
// neither.
func Seed(machine, key string) string { return machine + "\x00" + key }
