package keyring

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/godbus/dbus/v5"
	gokeyring "github.com/zalando/go-keyring"

	"holdfast/internal/bus"
)

// The names of freedesktop.org's Secret Service API, version 0.2.
const (
	secrets             = "org.freedesktop.secrets"
	secretsPath         = dbus.ObjectPath("/org/freedesktop/secrets")
	loginCollection     = secretsPath + "/collection/login"
	serviceInterface    = "org.freedesktop.Secret.Service"
	collectionInterface = "org.freedesktop.Secret.Collection"
	itemInterface       = "org.freedesktop.Secret.Item"
	errIsLocked         = "org.freedesktop.Secret.Error.IsLocked"

	noObject = dbus.ObjectPath("/")
)

// unlocked runs call if the keyring is unlocked. go-keyring itself would unlock it,
// with a dialog if needed, and wait for the user without a timeout.
func unlocked(ctx context.Context, name string, call func() ([]byte, error)) ([]byte, error) {
	address := os.Getenv("DBUS_SESSION_BUS_ADDRESS")
	if err := bus.Check(ctx, address, uint32(os.Geteuid())); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoService, err)
	}
	conn, err := dbus.SessionBus() // the connection that go-keyring uses
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoService, err)
	}
	// Closing the connection ends go-keyring's calls, which take no context.
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	s := secretService{ctx, conn}
	if err := s.checkUnlocked(name); err != nil {
		return nil, err
	}
	return call()
}

// secretService makes the calls of the Secret Service that show no dialog.
type secretService struct {
	ctx  context.Context
	conn *dbus.Conn
}

// checkUnlocked returns ErrLocked when the collection that go-keyring uses, or the
// secret of that name in it, is locked.
func (s secretService) checkUnlocked(name string) error {
	collection, err := s.collection()
	if err != nil {
		return err
	}
	if err := s.checkObject(collection, collectionInterface); err != nil {
		return err
	}
	var items []dbus.ObjectPath
	attributes := map[string]string{"service": service, "username": name} // as go-keyring sets them
	if err := s.call(collection, &items, collectionInterface+".SearchItems", attributes); err != nil {
		return err
	}
	if len(items) == 0 {
		return nil
	}
	return s.checkObject(items[0], itemInterface)
}

// collection returns the collection that go-keyring uses: login, else the default.
func (s secretService) collection() (dbus.ObjectPath, error) {
	var all []dbus.ObjectPath
	if err := s.property(secretsPath, serviceInterface, "Collections", &all); err != nil {
		return "", err
	}
	if slices.Contains(all, loginCollection) {
		return loginCollection, nil
	}
	var path dbus.ObjectPath
	if err := s.call(secretsPath, &path, serviceInterface+".ReadAlias", "default"); err != nil {
		return "", err
	}
	if path == noObject {
		return "", fmt.Errorf("%w: the Secret Service has no default collection", ErrNoService)
	}
	return path, nil
}

func (s secretService) checkObject(path dbus.ObjectPath, iface string) error {
	var locked bool
	if err := s.property(path, iface, "Locked", &locked); err != nil {
		return err
	}
	if locked {
		return ErrLocked
	}
	return nil
}

func (s secretService) property(path dbus.ObjectPath, iface, name string, result any) error {
	var v dbus.Variant
	if err := s.call(path, &v, "org.freedesktop.DBus.Properties.Get", iface, name); err != nil {
		return err
	}
	return v.Store(result)
}

func (s secretService) call(path dbus.ObjectPath, result any, method string, args ...any) error {
	return s.conn.Object(secrets, path).CallWithContext(s.ctx, method, 0, args...).Store(result)
}

// known translates errors of the bus and of go-keyring into this package's.
func known(err error) error {
	var remote dbus.Error
	switch {
	case errors.Is(err, gokeyring.ErrNotFound):
		return ErrNotFound
	case !errors.As(err, &remote):
		return err
	case remote.Name == errIsLocked:
		return ErrLocked
	}
	for _, gone := range []string{"ServiceUnknown", "NameHasNoOwner", "NoReply", "Disconnected", "Spawn."} {
		if strings.HasPrefix(remote.Name, "org.freedesktop.DBus.Error."+gone) {
			return fmt.Errorf("%w: %w", ErrNoService, err)
		}
	}
	return err
}
