// Package piv keeps keys on PIV cards, such as YubiKeys, and signs with them:
// the backend "piv" of package keys.
//
// Start at [Open]. The package makes no PC/SC calls itself: they hang, crash and
// cannot be cancelled. Child processes (holdfast-piv) make them, and can be killed
// (child.go, keeper.go). One child watches the readers for inserted and removed
// cards (scanner.go); each card in use has another one (worker.go), which holds the
// card's PIN while a key is unlocked. So a card that hangs affects no other card.
// The protocol between agent and child is package piv/wire.
//
// A key's material names its card, slot and policies, and holds the card's statement
// about it (material.go). The child compares a card's serial number before it sends
// the card a PIN.
//
// The package does not verify signatures (the agent does, under the recorded public
// key). It does not protect against programs that can speak to pcscd or read the
// child's memory while a key is unlocked, nor against the card itself. Agent and
// child keep the unlocked keys apart; the card has one PIN for all of them.
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

// Config configures the backend.
type Config struct {
	// Program is holdfast-piv, by an absolute path.
	Program string

	// Roots are the roots that cards' statements about their keys must lead to.
	Roots attestation.Roots

	// Socket is where pcscd listens; empty means the value of PCSCLITE_CSOCK_NAME, or
	// libpcsclite's default.
	Socket string

	// Log gets the children's messages and their ends; nil drops them.
	Log *slog.Logger

	limits limits // the zero value of each means its default
}

// A PIV is a backend on all cards of a machine. It is safe for concurrent use. Calls
// for one card wait for each other, and not for other cards.
type PIV struct {
	config  Config
	scanner *scanner
}

var _ keys.CardHolder = (*PIV)(nil)

// Open returns the backend for c. It starts no process: the first call for a card
// starts the first child.
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

// Close ends every child, which locks all keys. It does not wait for calls in
// progress: they fail.
func (p *PIV) Close() error {
	p.scanner.close()
	return nil
}

// limits are the timeouts of operations.
type limits struct {
	operation time.Duration // an operation without a touch or a new key
	touch     time.Duration // a signature that may wait for a touch
	finger    time.Duration // for the card to give up a touch itself
	inspect   time.Duration // inspecting the whole card, or setting it up
	generate  time.Duration // a new key; RSA keys take long
	identify  time.Duration // the first identification of a new card
	lock      time.Duration // for the child to confirm that it forgot the PIN
	grace     time.Duration // to finish a request whose caller has left
	backoff   time.Duration // the longest pause before a child that keeps failing is started again
	absent    time.Duration // between two attempts to reach a pcscd that does not run
}

// usual fills in the defaults.
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
