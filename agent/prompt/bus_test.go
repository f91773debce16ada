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

// TestBusOfAnotherUser: a socket on which somebody else listens is not the
// session's bus.
func TestBusOfAnotherUser(t *testing.T) {
	bus := desktop.StartBus(t)
	if _, err := dialBus(t.Context(), bus.Address, 0); err != nil {
		t.Fatal(err)
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
		conn, err := dialBus(t.Context(), "unix:path="+path, 0)
		if err == nil {
			conn.Close()
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

func TestBusSocket(t *testing.T) {
	for address, want := range map[string]string{
		"unix:path=/run/user/1/bus":             "/run/user/1/bus",
		"unix:path=/tmp/a%20b,guid=12":          "/tmp/a b",
		"unix:guid=12,path=/run/bus;tcp:host=x": "/run/bus",
		"unix:abstract=/tmp/dbus-x":             "@/tmp/dbus-x",
		"unix:path=relative":                    "",
		"unix:abstract=":                        "",
		"unix:tmpdir=/tmp":                      "",
		"unix:path=%zz":                         "",
		"tcp:host=localhost,port=1":             "",
		"unixexec:path=/bin/sh":                 "",
		"tcp:host=localhost;unix:path=/run/bus": "",
		"":                                      "",
	} {
		if got, err := busSocket(address); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v, want %q", address, got, err, want)
		}
	}
}

func FuzzBusSocket(f *testing.F) {
	seeds := []string{"unix:path=/run/user/1/bus", "unix:abstract=a,guid=1", "unix:path=%2f", "tcp:", ""}
	for _, s := range seeds {
		f.Add(s)
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, address string) {
		name, err := busSocket(address)
		if err == nil && (!strings.HasPrefix(address, "unix:") || !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "@")) {
			t.Errorf("%q is %q", address, name)
		}
	})
}
