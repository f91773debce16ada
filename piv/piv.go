// Package piv keeps keys on PIV cards, such as YubiKeys, and signs with them:
// the backend "piv" of package keys.
//
// Start at [Open]. The package talks to no card itself: PC/SC calls hang, crash
// and cannot be called off, so that each is made by a process of its own,
// holdfast-piv, which can be killed (child.go, keeper.go). One child watches the
// readers and tells which cards come and go (scanner.go); each card in use has
// one more (worker.go), which holds the card's PIN while a key is unlocked, so
// that a card that hangs costs nobody else anything. What they say to each other
// is in piv/wire.
//
// A key's material says on which card it is, in which slot and under which
// policies, and keeps what the card has stated about it (material.go); a card's
// serial number is compared before it is shown a PIN.
//
// The package does not verify signatures (the agent does, under the recorded
// public key). It does not protect against whoever can speak to pcscd, or can
// read the child's memory, while a key is unlocked, and not against the card
// itself. Which keys a person unlocks is kept apart here and in the child; the
// card knows one PIN for all of them.
package piv

import (
	"log/slog"
	"path/filepath"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/attestation"
)

// Backend is the name of this backend in key records and on the wire.
const Backend = "piv"

// Config says how to reach cards.
type Config struct {
	// Program is holdfast-piv, by an absolute path.
	Program string

	// Roots are what cards' statements about their keys must lead to.
	Roots attestation.Roots

	// Socket is where pcscd listens; empty means what PCSCLITE_CSOCK_NAME says, or
	// libpcsclite's own.
	Socket string

	// Log gets what the children have to say and when they end; nil drops it.
	Log *slog.Logger

	limits limits // the zero value of each means the usual
}

// A PIV is a backend on all cards of a machine. It is safe for concurrent use:
// calls for one card wait for each other, and for no other card.
type PIV struct {
	config  Config
	scanner *scanner
}

var _ keys.CardHolder = (*PIV)(nil)

// Open returns the backend for c. It starts nothing: the first call that is about
// a card starts the first child.
func Open(c Config) (*PIV, error) {
	if !filepath.IsAbs(c.Program) {
		return nil, &fault.Error{Kind: fault.BadRequest, Message: "the program for cards needs an absolute path", Hint: "piv-program: /usr/libexec/holdfast/holdfast-piv"}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.limits = c.limits.usual()
	return &PIV{config: c, scanner: newScanner(c)}, nil
}

// Name returns "piv".
func (p *PIV) Name() string { return Backend }

// Close ends every child. What was unlocked is locked. It does not wait for
// calls that are under way: they fail.
func (p *PIV) Close() error {
	p.scanner.close()
	return nil
}

// limits are how long things may take.
type limits struct {
	operation time.Duration // whatever wants neither a touch nor a new key
	touch     time.Duration // a signature that may wait for a touch
	finger    time.Duration // for the card to give up a touch itself
	inspect   time.Duration // a look at the whole card, or its set-up
	generate  time.Duration // a new key; RSA takes cards their time
	identify  time.Duration // the first look at a new card
	lock      time.Duration // for the child to say that it forgot
	grace     time.Duration // to finish what nobody waits for any more
	backoff   time.Duration // the longest pause before a child that keeps failing is started again
	absent    time.Duration // between two looks for a pcscd that is not there
}

// usual fills in what is not set.
func (l limits) usual() limits {
	for _, d := range []struct {
		is    *time.Duration
		usual time.Duration
	}{
		{&l.operation, 5 * time.Second}, {&l.touch, time.Minute}, {&l.finger, keys.MaxTouch + time.Second}, {&l.inspect, 20 * time.Second}, {&l.generate, 5 * time.Minute}, {&l.identify, 1500 * time.Millisecond},
		{&l.lock, 500 * time.Millisecond}, {&l.grace, 500 * time.Millisecond}, {&l.backoff, time.Second}, {&l.absent, time.Second},
	} {
		if *d.is == 0 {
			*d.is = d.usual
		}
	}
	return l
}
