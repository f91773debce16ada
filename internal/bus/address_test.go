package bus

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestSockets(t *testing.T) {
	for list, want := range map[string][]string{
		systemSocket:                            {"/var/run/dbus/system_bus_socket"},
		"unix:path=/run/user/1/bus":             {"/run/user/1/bus"},
		"unix:path=/a%20b,guid=0123":            {"/a b"},
		"unix:abstract=/tmp/dbus-x;":            {"@/tmp/dbus-x"},
		"unix:guid=0,path=/a;unix:path=/b":      {"/a", "/b"},
		"unix:path=/a;tcp:host=localhost":       nil,
		"tcp:host=localhost;unix:path=/run/bus": nil,
		"tcp:host=localhost,port=1":             nil,
		"unixexec:path=/bin/sh":                 nil,
		"UNIX:path=/a":                          nil,
		"unix:path=/a,abstract=b":               nil,
		"unix:path=/a,path=/b":                  nil,
		"unix:path=/a%":                         nil,
		"unix:path=%zz":                         nil,
		"unix:path=/a%00b":                      nil,
		"unix:path=":                            nil,
		"unix:abstract=":                        nil,
		"unix:path=@a":                          nil,
		"unix:path=relative":                    nil,
		"unix:tmpdir=/tmp":                      nil,
		"":                                      nil,
		";":                                     nil,
		"disabled:":                             nil,
		"autolaunch:":                           nil,
		"nonce-tcp:host=localhost,port=1;;":     nil,
	} {
		got, err := Sockets(list)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) || err != nil && !errors.Is(err, ErrAddress) {
			t.Errorf("%q: got %q, %v, want %q", list, got, err, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	for _, test := range []struct{ name, value, session, system string }{
		{"NONE", "", "", systemSocket},
		{"DBUS_SESSION_BUS_ADDRESS", "unix:path=/x", "unix:path=/x", systemSocket},
		{"DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/x", "", "unix:path=/x"},
		{"XDG_RUNTIME_DIR", "/run/user/7", "unix:path=/run/user/7/bus", systemSocket},
		{"XDG_RUNTIME_DIR", "/a,path=/b", "unix:path=/a%2cpath%3d/b/bus", systemSocket},
		{"XDG_RUNTIME_DIR", "relative", "", systemSocket},
	} {
		getenv := func(name string) string {
			if name == test.name {
				return test.value
			}
			return ""
		}
		if got := Session(getenv); got != test.session {
			t.Errorf("%s=%s: session bus %q, want %q", test.name, test.value, got, test.session)
		}
		if got := System(getenv); got != test.system {
			t.Errorf("%s=%s: system bus %q, want %q", test.name, test.value, got, test.system)
		}
	}
}

func FuzzSockets(f *testing.F) {
	seeds := []string{
		systemSocket, "unix:abstract=/tmp/dbus-x,guid=00;unix:path=/a%20b", "unix:path=%2f", "tcp:host=127.0.0.1,port=1", "",
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		names, err := Sockets(list)
		if (err == nil) == (len(names) == 0) {
			t.Errorf("got %q, %v", names, err)
		}
		for _, n := range names {
			if n == "" || n == "@" || n[0] != '/' && !strings.Contains(list, "abstract=") || strings.ContainsRune(n, 0) {
				t.Errorf("the name %q is accepted", n)
			}
		}
		if err == nil && (!strings.Contains(list, "unix:") || strings.Contains(list, ";tcp:")) {
			t.Error("the address of a network is accepted")
		}
	})
}
