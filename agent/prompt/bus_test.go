package prompt

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"

	"holdfast/test/desktop"
)

func withVariables(v variables) *Prompter {
	p := New(Options{Mode: Auto})
	p.getenv = v.get
	return p
}

// TestBusOfAnotherUser: a socket on which another user listens is not the
// session's bus.
func TestBusOfAnotherUser(t *testing.T) {
	bus := desktop.StartBus(t)
	if _, err := managerEnvironment(t.Context(), bus.Address, 0); err == nil || strings.Contains(err.Error(), "belongs to") {
		t.Fatalf("the session's own bus: %v, want that it has no systemd", err)
	}
	dir, err := os.MkdirTemp("", "hf-bus-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "bus")
	start(t, "listen", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65533, Gid: 65533}}, "LISTEN="+path)
	eventually(t, func() error {
		_, err := managerEnvironment(t.Context(), "unix:path="+path, 0)
		if err == nil {
			t.Fatal("it is taken for the session's bus")
		}
		if !strings.Contains(err.Error(), "belongs to uid 65533") {
			return err // it does not listen yet
		}
		return nil
	})
}

// TestDesktopOfServiceManager: an agent that was started before the desktop finds
// it by asking the user's systemd.
func TestDesktopOfServiceManager(t *testing.T) {
	bus := desktop.StartBus(t)
	manager := mocked(t, bus, systemd1, systemd1, systemd1Path, systemd1+".Manager")
	set := func(entries ...string) {
		t.Helper()
		object := manager.conn.Object(systemd1, systemd1Path)
		err := object.Call(mock+".UpdateProperties", 0, systemd1+".Manager", map[string]dbus.Variant{"Environment": dbus.MakeVariant(entries)}).Err
		if err != nil {
			t.Fatal(err)
		}
	}
	err := manager.conn.Object(systemd1, systemd1Path).Call(mock+".AddProperty", 0, systemd1+".Manager", "Environment", dbus.MakeVariant([]string{"A=b"})).Err
	if err != nil {
		t.Fatal(err)
	}
	p := withVariables(variables{"DBUS_SESSION_BUS_ADDRESS": bus.Address, "HOME": "/home/alice"})
	p.dirs = []string{"/usr/bin"}
	if _, err := p.desktop(t.Context()); err == nil {
		t.Error("got a desktop before there is one")
	}
	set("DISPLAY=:3", "WAYLAND_DISPLAY=wayland-1", "XAUTHORITY=no/path", "LD_PRELOAD=evil.so")
	at, err := p.desktop(t.Context())
	want := "DBUS_SESSION_BUS_ADDRESS=" + bus.Address + " DISPLAY=:3 HOME=/home/alice WAYLAND_DISPLAY=wayland-1 PATH=/usr/bin:/bin"
	if got := strings.Join(at.env, " "); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if err := manager.conn.Object(systemd1, systemd1Path).Call(mock+".UpdateProperties", 0, systemd1+".Manager",
		map[string]dbus.Variant{"Environment": dbus.MakeVariant("DISPLAY=:3")}).Err; err != nil {
		t.Fatal(err)
	}
	if at, err := p.desktop(t.Context()); err == nil {
		t.Errorf("got %+v from what is no list", at)
	}
}
