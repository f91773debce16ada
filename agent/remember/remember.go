// Package remember keeps the PINs of a person who wants that in the desktop's
// keyring, so that the person who unlocks the desktop is not asked again.
//
// Start at [New]. A PIN that was right is stored; the next time it is used instead
// of asking. One that turned out wrong is forgotten before the person is asked,
// so that a PIN that was changed elsewhere costs one try.
//
// It is off unless agent.yaml says remember-pins: secret-service, because of what it
// does not protect against: while the keyring is open every program of the same
// user can read the PIN in it, and a card in its reader then takes nothing but a
// program to use it.
package remember

import (
	"context"
	"errors"
	"log/slog"

	"holdfast/agent/prompt"
	"holdfast/internal/keyring"
)

// Asker is who is asked when nothing is remembered: a [prompt.Prompter].
type Asker interface {
	PIN(ctx context.Context, s prompt.Subject) ([]byte, error)
	Confirm(ctx context.Context, s prompt.Subject) error
	Touch(s prompt.Subject) (done func())
}

// Keyring is where PINs are kept: a [keyring.Keyring].
type Keyring interface {
	Get(ctx context.Context, name string) ([]byte, error)
	Set(ctx context.Context, name string, secret []byte) error
	Delete(ctx context.Context, name string) error
}

var (
	_ Asker   = (*prompt.Prompter)(nil)
	_ Keyring = (*keyring.Keyring)(nil)
)

// Person is an Asker with a memory. It is safe for concurrent use.
type Person struct {
	Asker
	ring Keyring
	log  *slog.Logger
}

// New returns a Person who remembers in ring what asker was told.
func New(asker Asker, ring Keyring, log *slog.Logger) *Person {
	return &Person{Asker: asker, ring: ring, log: log}
}

// few is a number of tries with which a remembered PIN is not used: if it is wrong
// by now, the person needs what is left. The number is that of the prompt, which for
// a card is without its last one.
const few = 1

// PIN returns the remembered PIN, or asks. A keyring that is locked or away is no
// error: the person is asked.
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
	return p.Asker.PIN(ctx, s)
}

// Right stores a PIN that was right.
func (p *Person) Right(s prompt.Subject, pin []byte) {
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

// nameOf is the keyring's name of a PIN. Nothing in it is a caller's.
func nameOf(s prompt.Subject) string { return "pin/" + s.Secret }
