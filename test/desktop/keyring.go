package desktop

import (
	"fmt"
	"syscall"

	"github.com/godbus/dbus/v5"
)

// The names of the Secret Service, freedesktop.org's Secret Service API 0.2.
const (
	secrets        = "org.freedesktop.secrets"
	secretsPath    = dbus.ObjectPath("/org/freedesktop/secrets")
	loginKeyring   = dbus.ObjectPath("/org/freedesktop/secrets/collection/login")
	secretsService = "org.freedesktop.Secret.Service"
)

// A Keyring is a gnome-keyring-daemon on a bus.
type Keyring struct {
	bus    *Bus
	conn   *dbus.Conn
	daemon *process
}

// StartKeyring starts the keyring daemon as a login with a password does: the
// login keyring is unlocked, and made the first time. It is kept in the bus's
// directory and outlives the daemon.
func (b *Bus) StartKeyring() *Keyring {
	b.tb.Helper()
	return b.keyring("--unlock")
}

// StartLockedKeyring starts it as a login without a password does.
func (b *Bus) StartLockedKeyring() *Keyring {
	b.tb.Helper()
	return b.keyring("--components=secrets")
}

func (b *Bus) keyring(how string) *Keyring {
	b.tb.Helper()
	k := &Keyring{bus: b, conn: b.Connect()}
	k.daemon = start(b.tb, b.environ(), "a password", "gnome-keyring-daemon", how, "--components=secrets", "--foreground", "--control-directory="+b.Dir)
	k.daemon.wait("the keyring", func() error { return owned(k.conn, secrets) })
	return k
}

// Lock locks the login keyring, and returns when it is.
func (k *Keyring) Lock() {
	k.bus.tb.Helper()
	var locked []dbus.ObjectPath
	var prompt dbus.ObjectPath
	err := k.conn.Object(secrets, secretsPath).Call(secretsService+".Lock", 0, []dbus.ObjectPath{loginKeyring}).Store(&locked, &prompt)
	if err == nil && len(locked) != 1 {
		err = fmt.Errorf("locked %v", locked)
	}
	if err != nil {
		k.bus.tb.Fatalf("lock the keyring: %v", err)
	}
}

// Items returns how many items the login keyring has.
func (k *Keyring) Items() int {
	k.bus.tb.Helper()
	v, err := k.conn.Object(secrets, loginKeyring).GetProperty("org.freedesktop.Secret.Collection.Items")
	if err != nil {
		k.bus.tb.Fatalf("the keyring's items: %v", err)
	}
	items, _ := v.Value().([]dbus.ObjectPath)
	return len(items)
}

// Signal sends the daemon a signal: SIGSTOP makes it hang, SIGCONT go on.
func (k *Keyring) Signal(s syscall.Signal) {
	k.bus.tb.Helper()
	k.daemon.signal(s)
}

// Stop ends the daemon.
func (k *Keyring) Stop() {
	k.bus.tb.Helper()
	k.daemon.kill()
	for owned(k.conn, secrets) == nil { // until the bus has noticed
	}
}
