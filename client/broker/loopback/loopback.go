// Package loopback is who the broker's proxy is on the loopback interface: an
// address, a certificate that kubeconfigs pin, and its private key, which the
// agent's device seals. Without such a device the key is a file, which guards
// loopback against other users and nobody else.
//
// Start at [Open]. What it keeps is in loopback.json in the broker's state
// directory, and is written whole or not at all.
//
// The key is in the process's memory while the broker runs: the seal keeps it from
// being copied with the disk.
package loopback

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"holdfast/agent/keys"
)

// SealedName is the name under which the agent keeps the key.
const SealedName = "broker-loopback"

// The names of the files in the state directory.
const (
	stateFile = "loopback.json"
	keyFile   = "loopback.key"
)

// Sealer seals secrets to a device. A [*holdfast/client.Client] is one.
type Sealer interface {
	Seal(ctx context.Context, name string, secret []byte, replace bool) error
	Unseal(ctx context.Context, name string) ([]byte, error)
}

// Options is what Open needs.
type Options struct {
	State   string // a directory of this uid alone
	Sealer  Sealer
	KeyFile bool // keep the key in a file even where it could be sealed
}

// Identity is who the proxy is.
type Identity struct {
	Certificate tls.Certificate
	PEM         string    // the certificate, for kubeconfigs
	Key         string    // where the private key is kept, for people
	KeyFile     bool      // it is kept in a file
	Replaced    time.Time // when it took the place of one that was lost; zero when it is the first
}

// Open returns the identity that is kept in the state directory, and makes one
// when there is none, or when the device will never give back the key. Other
// errors change nothing: an agent that cannot be reached now has the key later.
func Open(ctx context.Context, o Options) (*Identity, error) {
	kept, err := load(o.State)
	if err != nil {
		return nil, err
	}
	if kept.Certificate == "" {
		return o.create(ctx, kept)
	}
	secret, err := o.secret(ctx, kept)
	if lost(err) {
		now := time.Now().UTC().Truncate(time.Second)
		kept.Replaced = &now
		return o.replace(ctx, kept, err)
	}
	if err != nil {
		return nil, fmt.Errorf("the proxy's key: %w", err)
	}
	defer clear(secret)
	return o.identity(kept, secret)
}

// Kept returns the certificate that is kept in the state directory, PEM, and
// where its key is; both are empty when there is none. It needs no device.
func Kept(state string) (certificate, key string) {
	kept, err := load(state)
	if err != nil || kept.Certificate == "" {
		return "", ""
	}
	return kept.Certificate, where(state, kept.Key == keptInFile)
}

// secret returns the scalar of the key.
func (o Options) secret(ctx context.Context, kept state) ([]byte, error) {
	if kept.Key == keptInFile {
		return readKey(filepath.Join(o.State, keyFile))
	}
	return o.Sealer.Unseal(ctx, SealedName)
}

// lost reports whether the key will never be given back. The agent says denied
// for a secret that is missing and for one that policy forbids: [Options.replace]
// finds out which.
func lost(err error) bool {
	switch keys.KindOf(err) {
	case keys.KeyLost, keys.IdentityChanged, keys.Denied, keys.NotFound:
		return true
	}
	return errors.Is(err, fs.ErrNotExist) // the file was removed
}

// create makes the first identity.
func (o Options) create(ctx context.Context, kept state) (*Identity, error) {
	return o.make(ctx, kept, true)
}

// replace makes an identity in place of one whose key was lost for the reason why.
func (o Options) replace(ctx context.Context, kept state, why error) (*Identity, error) {
	// A secret that is there but forbidden is not replaced: it is not lost.
	i, err := o.make(ctx, kept, keys.KindOf(why) != keys.Denied)
	if err != nil {
		return nil, fmt.Errorf("the proxy's key: %w", why)
	}
	return i, nil
}

// make makes a key and a certificate, and keeps first the one and then the other:
// a certificate whose key is nowhere would be of no use.
func (o Options) make(ctx context.Context, kept state, over bool) (*Identity, error) {
	secret, certificate, err := generate()
	if err != nil {
		return nil, err
	}
	defer clear(secret)
	kept.Key, kept.Certificate = keptSealed, certificate
	if o.KeyFile {
		kept.Key = keptInFile
	} else if err = o.Sealer.Seal(ctx, SealedName, secret, over); keys.KindOf(err) == keys.Unsupported {
		kept.Key, err = keptInFile, nil // no device here can
	}
	if err == nil && kept.Key == keptInFile {
		err = replaceFile(o.State, keyFile, secret)
	}
	if err != nil {
		return nil, fmt.Errorf("keep the proxy's key: %w", err)
	}
	if err := save(o.State, kept); err != nil {
		return nil, err
	}
	return o.identity(kept, secret)
}

func (o Options) identity(kept state, secret []byte) (*Identity, error) {
	pair, err := assemble(kept.Certificate, secret)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(o.State, stateFile), err)
	}
	file := kept.Key == keptInFile
	i := &Identity{Certificate: pair, PEM: kept.Certificate, KeyFile: file, Key: where(o.State, file)}
	if kept.Replaced != nil {
		i.Replaced = *kept.Replaced
	}
	return i, nil
}

func where(dir string, file bool) string {
	if file {
		return filepath.Join(dir, keyFile)
	}
	return "sealed by the TPM"
}
