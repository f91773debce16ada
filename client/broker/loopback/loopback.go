// Package loopback holds the identity of the broker's proxy on the loopback interface:
// an address, a certificate that kubeconfigs pin, and its private key. The agent's
// device seals the key. Where there is no such device, the key is in the desktop's
// keyring when that is unlocked, and else in a file, which protects loopback against
// other users only.
//
// Start at [Open]. The state is in loopback.json in the broker's state directory, and
// is written whole or not at all.
//
// Kubeconfigs pin the certificate, so another key breaks every one of them. A key in a
// keyring is therefore never replaced, not even when an unlocked keyring does not have
// it: another desktop's keyring may answer under the same name. The error says what to
// do. When the broker starts, a key in a file is moved to the device or to the keyring
// if there is one, and the file is removed when the key was read back from there.
//
// The key is in the process's memory while the broker runs. The seal keeps it from
// being copied with the disk, and so does a keyring with a good password; every
// program of the same user can read it from an unlocked keyring, or from the file.
package loopback

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"holdfast/internal/atomicfile"
	"holdfast/internal/fault"
)

// SealedName is the name under which the agent keeps the key.
const SealedName = "broker-loopback"

// The names of the files in the state directory.
const (
	stateFile = "loopback.json"
	keyFile   = "loopback.key"
)

// Sealer seals secrets to a device, and takes one only when the device has given it
// back. A [*holdfast/client.Client] is one.
type Sealer interface {
	Seal(ctx context.Context, name string, secret []byte, replace bool) error
	Unseal(ctx context.Context, name string) ([]byte, error)
}

// Options configures Open.
type Options struct {
	State   string // a directory of this uid alone
	Sealer  Sealer
	Keyring Keyring      // the desktop's; nil where there is none
	KeyFile bool         // keep the key in a file even where it could be sealed, or be in the keyring
	Log     *slog.Logger // slog's default when nil
}

// Identity is the proxy's identity.
type Identity struct {
	Certificate tls.Certificate
	PEM         string    // the certificate, for kubeconfigs
	Key         string    // where the private key is kept, for people
	KeyFile     bool      // it is kept in a file
	Replaced    time.Time // when it took the place of one that was lost; zero when it is the first
}

// Open returns the identity that is kept in the state directory, and makes one when
// there is none, or when the device will never return the key. Other errors change
// nothing: an agent that cannot be reached now has the key later, and so has a
// keyring that is locked ([fault.PINRequired]) or not there
// ([fault.DeviceAbsent]).
func Open(ctx context.Context, o Options) (*Identity, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	kept, err := load(o.State)
	if err != nil {
		return nil, err
	}
	if kept.Certificate == "" {
		return o.make(ctx, kept, true)
	}
	secret, err := o.secret(ctx, kept)
	if kept.Key != keptInKeyring && lost(err) {
		now := time.Now().UTC().Truncate(time.Second)
		kept.Replaced = &now
		return o.replace(ctx, kept, err)
	}
	if err != nil {
		return nil, fmt.Errorf("the proxy's key: %w", err)
	}
	defer clear(secret)
	pair, err := assemble(kept.Certificate, secret)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(o.State, stateFile), err)
	}
	return o.identity(o.settle(ctx, kept, secret), pair), nil
}

// Kept returns the certificate that is kept in the state directory, PEM, and
// where its key is; both are empty when there is none. It needs no device.
func Kept(state string) (certificate, key string) {
	kept, err := load(state)
	if err != nil || kept.Certificate == "" {
		return "", ""
	}
	return kept.Certificate, where(state, kept.Key)
}

// secret returns the scalar of the key.
func (o Options) secret(ctx context.Context, kept state) ([]byte, error) {
	switch kept.Key {
	case keptInFile:
		return readKey(filepath.Join(o.State, keyFile))
	case keptInKeyring:
		return o.fromKeyring(ctx, kept)
	}
	return o.Sealer.Unseal(ctx, SealedName)
}

// lost reports whether device or file will never return the key; for a keyring that
// cannot be known. The agent says denied for a secret that is missing
// and for one that policy forbids: [Options.replace] finds out which.
func lost(err error) bool {
	switch fault.KindOf(err) {
	case fault.KeyLost, fault.IdentityChanged, fault.Denied, fault.NotFound:
		return true
	}
	return errors.Is(err, fs.ErrNotExist) // the file was removed
}

// replace makes an identity in place of one whose key was lost for the reason why.
func (o Options) replace(ctx context.Context, kept state, why error) (*Identity, error) {
	// A secret that is there but forbidden is not replaced: it is not lost.
	i, err := o.make(ctx, kept, fault.KindOf(why) != fault.Denied)
	if err != nil {
		return nil, fmt.Errorf("the proxy's key: %w", why)
	}
	return i, nil
}

// make makes a key and a certificate, and stores the key first: a certificate without
// its key would be of no use.
func (o Options) make(ctx context.Context, kept state, over bool) (*Identity, error) {
	secret, certificate, err := generate()
	if err != nil {
		return nil, err
	}
	defer clear(secret)
	kept.Certificate = certificate
	kept.Key, err = o.protect(ctx, kept, secret, over)
	if err == nil && kept.Key == keptInFile {
		err = atomicfile.Write(filepath.Join(o.State, keyFile), secret, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("keep the proxy's key: %w", err)
	}
	if err := save(o.State, kept); err != nil {
		return nil, err
	}
	pair, err := assemble(certificate, secret)
	if err != nil {
		return nil, err
	}
	return o.identity(kept, pair), nil
}

// protect stores the key in a better place than a file, and returns the place;
// keptInFile when there is none, or a file is wanted.
func (o Options) protect(ctx context.Context, kept state, secret []byte, over bool) (string, error) {
	if o.KeyFile {
		return keptInFile, nil
	}
	err := o.Sealer.Seal(ctx, SealedName, secret, over)
	switch k := fault.KindOf(err); {
	case k == fault.Unsupported: // no device here ever can
	case k == fault.DeviceAbsent && o.Keyring != nil: // a desktop need not have one
	default:
		return keptSealed, err
	}
	if o.toKeyring(ctx, kept, secret) {
		return keptInKeyring, nil
	}
	return keptInFile, nil
}

func (o Options) identity(kept state, pair tls.Certificate) *Identity {
	i := &Identity{Certificate: pair, PEM: kept.Certificate, KeyFile: kept.Key == keptInFile, Key: where(o.State, kept.Key)}
	if kept.Replaced != nil {
		i.Replaced = *kept.Replaced
	}
	return i
}

// where returns the place of a key, for users.
func where(dir, key string) string {
	switch key {
	case keptInFile:
		return filepath.Join(dir, keyFile)
	case keptInKeyring:
		return "in the desktop's keyring"
	}
	return "sealed by the TPM"
}
