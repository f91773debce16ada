package enroll

import (
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	"holdfast/client/profile"
)

func leaf(lifetime time.Duration) *x509.Certificate {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return &x509.Certificate{NotBefore: from, NotAfter: from.Add(lifetime)}
}

func TestMoment(t *testing.T) {
	for _, test := range []struct {
		renewal profile.Renewal
		seed    string
		want    time.Duration
	}{
		{profile.Renewal{}, "", 70 * time.Hour},
		{profile.Renewal{}, "laptop", 70 * time.Hour}, // no jitter was asked for
		{profile.Renewal{Fraction: 0.5}, "", 50 * time.Hour},
		{profile.Renewal{Fraction: 0.5, Jitter: 0.1}, "", 50 * time.Hour}, // switched off
	} {
		l := leaf(100 * time.Hour)
		if got := moment(l, test.renewal, test.seed).Sub(l.NotBefore).Round(time.Second); got != test.want {
			t.Errorf("%+v, %q: got %s, want %s", test.renewal, test.seed, got, test.want)
		}
	}
}

// Jitter spreads machines over its whole range, and gives each machine the same
// moment every time.
func TestJitter(t *testing.T) {
	r, l := profile.Renewal{Fraction: 0.7, Jitter: 0.2}, leaf(100*time.Hour)
	first, last := 100*time.Hour, time.Duration(0)
	for i := range 1000 {
		seed := seedOf(fmt.Sprintf("machine-%d", i), "alice")
		at := moment(l, r, seed).Sub(l.NotBefore)
		first, last = min(first, at), max(last, at)
		if again := moment(l, r, seed).Sub(l.NotBefore); again != at {
			t.Fatalf("%q: %s, and then %s", seed, at, again)
		}
	}
	if first < 50*time.Hour || last > 70*time.Hour || last-first < 19*time.Hour {
		t.Errorf("from %s to %s, want all of 50h to 70h", first, last)
	}
	if moment(l, r, seedOf("a", "b")) == moment(l, r, seedOf("a", "c")) {
		t.Error("two keys of one machine have one moment")
	}
}
