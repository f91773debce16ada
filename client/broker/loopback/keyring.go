package loopback

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path/filepath"

	"holdfast/internal/fault"
	"holdfast/internal/keyring"
)

// Keyring keeps secrets for a desktop's user. A [*keyring.Keyring] is one.
type Keyring interface {
	Get(ctx context.Context, name string) ([]byte, error)
	Set(ctx context.Context, name string, secret []byte) error
}

// keyringName is the name under which the keyring has the key of a certificate. It
// is the certificate's own: a broker with another state directory, and a key that
// took this one's place, do not overwrite it.
func keyringName(certificate string) string {
	sum := sha256.Sum256([]byte(certificate))
	return SealedName + "-" + hex.EncodeToString(sum[:8])
}

// toKeyring puts the key into the keyring, and reports whether it is there: whether
// the keyring gives it back.
func (o Options) toKeyring(ctx context.Context, kept state, secret []byte) bool {
	if o.Keyring == nil {
		return false
	}
	name := keyringName(kept.Certificate)
	err := o.Keyring.Set(ctx, name, secret)
	var back []byte
	if err == nil {
		back, err = o.Keyring.Get(ctx, name)
		defer clear(back)
	}
	if err == nil && !bytes.Equal(back, secret) {
		err = errors.New("the keyring gave back something else")
	}
	if err != nil {
		o.Log.Debug("the keyring does not take the proxy's key", "error", err)
	}
	return err == nil
}

// fromKeyring returns the key. Errors say how the user gets it back.
func (o Options) fromKeyring(ctx context.Context, kept state) ([]byte, error) {
	if o.Keyring == nil {
		return nil, o.keyringError(keyring.ErrNoService)
	}
	secret, err := o.Keyring.Get(ctx, keyringName(kept.Certificate))
	if err != nil {
		return nil, o.keyringError(err)
	}
	return secret, nil
}

// keyringError is the error for a keyring that did not give back the key.
func (o Options) keyringError(err error) error {
	replace := "; if it is gone for good, remove " + filepath.Join(o.State, stateFile) + ": another key is made, and kubeconfigs have to be written again"
	e := &fault.Error{
		Kind: fault.DeviceFailed, Message: "the proxy's key is in the desktop's keyring, which did not give it back",
		Hint: "the broker's log has the cause", Err: err,
	}
	switch {
	case errors.Is(err, keyring.ErrLocked):
		e.Kind, e.Message = fault.PINRequired, "the proxy's key is in the desktop's keyring, which is locked"
		e.Hint = "unlock the keyring (log in to the desktop, or use its password manager), then try again"
	case errors.Is(err, keyring.ErrNoService):
		e.Kind, e.Message = fault.DeviceAbsent, "the proxy's key is in the desktop's keyring, and there is none now"
		e.Hint = "log in to the desktop where the key was made, then try again" + replace
	case errors.Is(err, keyring.ErrNotFound):
		e.Kind, e.Message = fault.DeviceAbsent, "the proxy's key is in a desktop's keyring, and this one does not have it"
		e.Hint = "log in to the desktop where the key was made, then try again" + replace
	case errors.Is(err, keyring.ErrTimeout):
		e.Kind, e.Message = fault.Deadline, "the proxy's key is in the desktop's keyring, which does not answer"
		e.Hint = "try again, or log out of the desktop and in again"
	}
	return e
}

// settle moves the key from the file to a better place, if that is allowed and there is
// one now, and returns the new state. At every moment the key is in one of the two
// places, or in both.
func (o Options) settle(ctx context.Context, kept state, secret []byte) state {
	if kept.Key == keptInFile {
		kept = o.move(ctx, kept, secret)
	}
	if kept.Key != keptInFile { // and was given back
		if err := removeKey(o.State); err != nil {
			o.Log.Warn("the proxy's key is in a file as well, which cannot be removed", "error", err)
		}
	}
	return kept
}

func (o Options) move(ctx context.Context, kept state, secret []byte) state {
	// A secret that the agent has under the name already is another broker's.
	better, err := o.protect(ctx, kept, secret, false)
	if err != nil {
		o.Log.Debug("the device does not take the proxy's key", "error", err)
	}
	if err != nil || better == keptInFile {
		return kept
	}
	moved := kept
	moved.Key = better
	if err := save(o.State, moved); err != nil {
		o.Log.Warn("the proxy's key stays in its file", "error", err)
		return kept
	}
	o.Log.Info("the proxy's key was moved from its file", "now", where(o.State, moved.Key))
	return moved
}
