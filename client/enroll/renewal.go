package enroll

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"os"
	"strings"
	"time"

	"holdfast/client/profile"
	"holdfast/internal/keys"
)

// moment returns when a certificate is to be renewed: after r's fraction of its
// lifetime, and with jitter at most that fraction of the lifetime earlier. How
// much earlier depends on seed alone, so the result is the same in every call; an
// empty seed switches jitter off.
func moment(leaf *x509.Certificate, r profile.Renewal, seed string) time.Time {
	fraction := cmp.Or(r.Fraction, profile.DefaultFraction)
	if seed != "" {
		fraction -= r.Jitter * share(seed)
	}
	return leaf.NotBefore.Add(time.Duration(max(fraction, 0) * float64(leaf.NotAfter.Sub(leaf.NotBefore))))
}

// share spreads seeds evenly over the numbers from 0 to less than 1.
func share(seed string) float64 {
	sum := sha256.Sum256([]byte("holdfast renewal\x00" + seed))
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / (1 << 53)
}

// seedOf identifies one key of one machine, for [moment]. It is no secret.
func seedOf(machine, key string) string { return machine + "\x00" + key }

// planned is [moment] for a key of this machine.
func planned(leaf *x509.Certificate, r profile.Renewal, key string) time.Time {
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		name, _ := os.Hostname() // machines without a name share their jitter
		id = []byte(name)
	}
	return moment(leaf, r, seedOf(strings.TrimSpace(string(id)), keys.SetOf(key)))
}

// Planned returns when a key's certificate is to be renewed, and the profile that
// says so. The name is empty for a certificate that no profile renews.
func Planned(key string, leaf *x509.Certificate) (at time.Time, profileName string) {
	for _, system := range []bool{false, true} {
		all, _, _ := profile.Load(profile.Directory(system)) // a profile that cannot be read renews nothing
		for _, name := range ProfilesOf(all, keys.SetOf(key)) {
			if p := all[name]; p.Renewal.SignerName != "" {
				return planned(leaf, p.Renewal, key), name
			}
		}
	}
	return time.Time{}, ""
}
