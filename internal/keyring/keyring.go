// Package keyring keeps small secrets in the desktop's keyring: the Secret Service
// on the user's session bus, which gnome-keyring, KWallet and KeePassXC provide.
//
// Start at [New]. go-keyring does the work, behind a guard: every call has a
// deadline, a call that hangs blocks no other caller, and a locked keyring is an
// error rather than an unexpected dialog.
//
// It does not protect against programs of the same user: each of them can read an
// unlocked keyring, or take the name org.freedesktop.secrets on the session bus and
// so be the keyring. Secrets cross that bus unencrypted (the "plain" session of the
// Secret Service API), and go-keyring's copies of them stay in memory until that
// memory is reused. A keyring that locks itself in the few milliseconds between the
// check and the use does show a dialog.
package keyring

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	gokeyring "github.com/zalando/go-keyring"
)

// The errors that callers can tell apart with errors.Is.
var (
	// ErrNotFound: the keyring is unlocked, and has no such secret.
	ErrNotFound = errors.New("the keyring has no such secret")
	// ErrLocked: a user has to unlock the keyring first.
	ErrLocked = errors.New("the keyring is locked")
	// ErrNoService: there is no session bus, no Secret Service on it, or no default
	// keyring in it.
	ErrNoService = errors.New("there is no keyring")
	// ErrTimeout: the Secret Service or the bus did not answer in time, or has not yet
	// answered an earlier call.
	ErrTimeout = errors.New("the keyring does not answer")
)

// MaxSecret is the size of the largest secret, in bytes.
const MaxSecret = 4096

// service is the attribute that all of this program's secrets have.
const service = "holdfast"

// A Keyring is the desktop's keyring. Its methods are safe for concurrent use, and
// take 5 s at most even when ctx has no deadline. It owns godbus's shared
// connection to the session bus (dbus.SessionBus), which go-keyring uses, and closes
// it after each call: a process has one Keyring, and no other user of that
// connection.
type Keyring struct {
	guard guard
}

// New returns the keyring on the session bus that DBUS_SESSION_BUS_ADDRESS names. The
// address has to pass [bus.Check]. Without that variable there is no keyring: this
// package starts no bus.
func New() *Keyring {
	return &Keyring{guard: newGuard()}
}

// Get returns the secret stored under name. The caller clears it.
func (k *Keyring) Get(ctx context.Context, name string) ([]byte, error) {
	return k.do(ctx, "read from", name, func() ([]byte, error) {
		text, err := gokeyring.Get(service, name)
		if err != nil {
			return nil, err
		}
		return decode(text)
	})
}

// Set stores a secret of at most [MaxSecret] bytes under name and replaces the one
// stored before.
func (k *Keyring) Set(ctx context.Context, name string, secret []byte) error {
	if len(secret) > MaxSecret {
		return fmt.Errorf("a secret of %d bytes is too long for the keyring", len(secret))
	}
	text := base64.StdEncoding.EncodeToString(secret) // the Secret Service stores texts
	_, err := k.do(ctx, "write to", name, func() ([]byte, error) {
		return nil, gokeyring.Set(service, name, text)
	})
	return err
}

// Delete removes the secret stored under name.
func (k *Keyring) Delete(ctx context.Context, name string) error {
	_, err := k.do(ctx, "delete from", name, func() ([]byte, error) {
		return nil, gokeyring.Delete(service, name)
	})
	return err
}

// do calls go-keyring through the guard if the keyring is unlocked.
func (k *Keyring) do(ctx context.Context, doing, name string, call func() ([]byte, error)) ([]byte, error) {
	value, err := k.guard.do(ctx, func(ctx context.Context) ([]byte, error) {
		return unlocked(ctx, name, call)
	})
	if err != nil {
		return nil, fmt.Errorf("%s the keyring: %w", doing, known(err))
	}
	return value, nil
}

// decode reads a secret's text: base64, as Set writes it. Other programs can write
// there too.
func decode(text string) ([]byte, error) {
	if len(text) > base64.StdEncoding.EncodedLen(MaxSecret) {
		return nil, errors.New("the stored text is too long")
	}
	secret, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, errors.New("the stored text was not written by holdfast") // err would show a part of it
	}
	return secret, nil
}
