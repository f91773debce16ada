package minted

import (
	"context"
	"fmt"
	"sync"
	"time"

	"holdfast/client/broker/ticket"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/metrics"
)

// Source is a cluster in memory.
type Source struct {
	Takes    time.Duration // to mint
	Lifetime time.Duration // of what it mints
	From     time.Duration // after now, when it begins to be valid
	Verdict  string        // of probes
	Same     bool          // mint the same credential again and again
	Hangs    bool          // until the context ends

	mu     sync.Mutex
	err    error
	mints  int
	probes int
}

// Fail makes mints fail from now on; nil lets them succeed.
func (s *Source) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Counts returns how many mints and probes there were.
func (s *Source) Counts() (mints, probes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mints, s.probes
}

func (s *Source) obtain(ctx context.Context, _ ticket.Process, _ *profile.Profile, _ string) (*credential, error) {
	s.mu.Lock()
	s.mints++
	n, err := s.mints, s.err
	if s.Same {
		n = 0
	}
	s.mu.Unlock()
	if s.Hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case <-time.After(s.Takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &credential{wire: brokerwire.Credential{Token: fmt.Sprintf("token %d", n)}, from: now.Add(s.From), expires: now.Add(s.Lifetime)}, nil
}

func (s *Source) probe(context.Context, *profile.Profile, *credential) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probes++
	return s.Verdict
}

// NewWith returns a mint of a source, and its metrics.
func NewWith(s *Source) (*Mint, *metrics.Registry) {
	r := metrics.New()
	return newMint(s, Options{Metrics: r}), r
}

// Len returns how many entries there are, with or without a credential.
func (m *Mint) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}

// Access to internals for tests.
var (
	SameServer       = sameServer
	SameCertificates = sameCertificates
	NotBefore        = notBefore
	Margin           = margin
)
