// Package remember keeps PINs in the desktop's keyring (opt-in), so that a user who
// has unlocked the desktop is not asked for them again.
//
// Start at [New]. A PIN that the device accepted is stored and used for the next prompt.
// A stored PIN that was wrong is deleted before the user is asked, so that a PIN that
// was changed elsewhere costs one try.
//
// It is off unless agent.yaml has remember-pins: secret-service. It does not protect
// against programs of the same user: while the keyring is unlocked, each of them can
// read the PIN and use a card that is in its reader.
package remember

import (
	"context"
	"errors"
	"log/slog"

	"holdfast/agent/prompt"
	"holdfast/internal/keyring"
)

// Prompter asks the user when no PIN is stored: a [prompt.Prompter].
type Prompter interface {
	PIN(ctx context.Context, s prompt.Subject) ([]byte, error)
	Confirm(ctx context.Context, s prompt.Subject) error
	Touch(s prompt.Subject) (done func())
}

// Keyring stores the PINs: a [keyring.Keyring].
type Keyring interface {
	Get(ctx context.Context, name string) ([]byte, error)
	Set(ctx context.Context, name string, secret []byte) error
	Delete(ctx context.Context, name string) error
}

var (
	_ Prompter = (*prompt.Prompter)(nil)
	_ Keyring  = (*keyring.Keyring)(nil)
)

// Person is a Prompter with a memory. It is safe for concurrent use.
type Person struct {
	Prompter
	ring Keyring
	log  *slog.Logger
}

// New returns a Person that stores in ring the PINs that prompter returned.
func New(prompter Prompter, ring Keyring, log *slog.Logger) *Person {
	return &Person{Prompter: prompter, ring: ring, log: log}
}

// few is the largest number of tries left with which a stored PIN is not used: it
// may have been changed since, and the user needs these tries. The prompt's number of a
// card does not count the last try, which is never spent.
const few = 1

// PIN returns the stored PIN, or asks the user. It also asks when the keyring is
// locked or cannot be reached.
func (p *Person) PIN(ctx context.Context, s prompt.Subject) ([]byte, error) {
	if s.Again != "" {
		p.forget(ctx, s)
	} else if s.Tries == 0 || s.Tries > few {
		pin, err := p.ring.Get(ctx, nameOf(s))
		if err == nil {
			return pin, nil
		}
		p.note("read", err)
	}
	return p.Prompter.PIN(ctx, s)
}

// Store stores a PIN that the device accepted.
func (p *Person) Store(s prompt.Subject, pin []byte) {
	p.note("write", p.ring.Set(context.Background(), nameOf(s), pin))
}

func (p *Person) forget(ctx context.Context, s prompt.Subject) {
	p.note("delete", p.ring.Delete(ctx, nameOf(s)))
}

func (p *Person) note(what string, err error) {
	if err != nil && !errors.Is(err, keyring.ErrNotFound) {
		p.log.Info("the keyring is not used", "to", what, "error", err)
	}
}

// nameOf returns the keyring's name of a PIN. No caller can influence it.
func nameOf(s prompt.Subject) string { return "pin/" + s.Secret }
