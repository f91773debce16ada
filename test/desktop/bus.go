// Package desktop gives tests what a desktop has and a bare machine has not: a
// message bus, a keyring and a logind, each private to the test and ended with it.
//
// Start at [StartBus]. The bus is the real dbus-daemon and the keyring the real
// gnome-keyring-daemon; logind is python3-dbusmock's template, since the real one
// wants to be the machine's only one.
package desktop

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"
)

// TB is what this package wants of a test.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// testTimeout is how long a program may take to get ready or to end.
const testTimeout = time.Minute

// configuration has no service directories: a service that no test started is not there.
const configuration = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path=%s</listen>
  <auth>EXTERNAL</auth>
  %s
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
    <allow user="*"/>
  </policy>
</busconfig>
`

// A Bus is a dbus-daemon that listens on a socket of its own.
type Bus struct {
	Dir     string // private: home and runtime directory of what is started on the bus
	Address string // unix:path=…

	tb     TB
	daemon *process
}

// StartBus starts a bus on which nothing is started by itself.
func StartBus(tb TB) *Bus {
	tb.Helper()
	return startBus(tb, "")
}

// StartActivatingBus starts a bus that, like a desktop's session bus, starts the
// machine's services when they are asked for.
func StartActivatingBus(tb TB) *Bus {
	tb.Helper()
	return startBus(tb, "<standard_session_servicedirs/>")
}

func startBus(tb TB, services string) *Bus {
	tb.Helper()
	dir, err := os.MkdirTemp("", "hf-bus-")
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "bus")
	b := &Bus{Dir: dir, Address: "unix:path=" + path, tb: tb}
	text := fmt.Sprintf(configuration, path, services)
	if err := os.WriteFile(b.path("bus.conf"), []byte(text), 0o600); err != nil {
		tb.Fatalf("%v", err)
	}
	b.Restart()
	return b
}

func (b *Bus) path(name string) string { return filepath.Join(b.Dir, name) }

// Restart starts the bus at the same address again. Its clients and services are gone.
func (b *Bus) Restart() {
	b.tb.Helper()
	b.Stop()
	os.Remove(b.path("bus")) // a killed bus leaves its socket behind
	b.daemon = start(b.tb, b.environ(), "", "dbus-daemon", "--config-file="+b.path("bus.conf"), "--nofork", "--nopidfile")
	b.daemon.wait("the bus", func() error {
		conn, err := dbus.Connect(b.Address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// Stop ends the bus, and with it what is on it.
func (b *Bus) Stop() {
	if b.daemon != nil {
		b.daemon.kill()
	}
}

// Signal sends the bus a signal: SIGSTOP makes it hang, SIGCONT go on.
func (b *Bus) Signal(s syscall.Signal) {
	b.tb.Helper()
	b.daemon.signal(s)
}

// Connect returns a connection to the bus that ends with the test.
func (b *Bus) Connect() *dbus.Conn {
	b.tb.Helper()
	conn, err := dbus.Connect(b.Address)
	if err != nil {
		b.tb.Fatalf("%v", err)
	}
	b.tb.Cleanup(func() { conn.Close() })
	return conn
}

// environ is the environment of programs on the bus.
func (b *Bus) environ() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.Dir, "XDG_RUNTIME_DIR=" + b.Dir, "XDG_DATA_HOME=" + b.path("share"), "LC_ALL=C.UTF-8",
		"DBUS_SESSION_BUS_ADDRESS=" + b.Address, "DBUS_SYSTEM_BUS_ADDRESS=" + b.Address,
	}
}

// owned returns an error unless a client owns the name.
func owned(conn *dbus.Conn, name string) error {
	var has bool
	if err := conn.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, name).Store(&has); err != nil {
		return err
	}
	if !has {
		return fmt.Errorf("nobody owns %s", name)
	}
	return nil
}
