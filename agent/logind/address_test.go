package logind

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestSockets(t *testing.T) {
	for list, want := range map[string][]string{
		usual:                               {"/var/run/dbus/system_bus_socket"},
		"unix:path=/a%20b,guid=0123":        {"/a b"},
		"unix:abstract=/tmp/dbus-x;":        {"@/tmp/dbus-x"},
		"unix:guid=0,path=/a;unix:path=/b":  {"/a", "/b"},
		"unix:path=/a;tcp:host=localhost":   nil,
		"unixexec:path=/bin/sh":             nil,
		"UNIX:path=/a":                      nil,
		"unix:path=/a,abstract=b":           nil,
		"unix:path=/a%":                     nil,
		"unix:path=/a%00b":                  nil,
		"unix:path=":                        nil,
		"unix:path=@a":                      nil,
		"unix:tmpdir=/tmp":                  nil,
		"":                                  nil,
		"autolaunch:":                       nil,
		"nonce-tcp:host=localhost,port=1;;": nil,
	} {
		got, err := sockets(list)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: got %q, %v, want %q", list, got, err, want)
		}
	}
	if _, err := sockets("tcp:host=localhost"); !errors.Is(err, errNotLocal) {
		t.Errorf("got %v", err)
	}
}

func FuzzSockets(f *testing.F) {
	f.Add(usual)
	f.Add("unix:abstract=/tmp/dbus-x,guid=00;unix:path=/a%20b")
	f.Add("tcp:host=127.0.0.1,port=1")
	f.Fuzz(func(t *testing.T, list string) {
		names, err := sockets(list)
		if (err == nil) == (len(names) == 0) {
			t.Errorf("got %q, %v", names, err)
		}
		for _, n := range names {
			if n == "" || n == "@" || n[0] != '/' && !strings.Contains(list, "abstract=") || strings.ContainsRune(n, 0) {
				t.Errorf("took the name %q", n)
			}
		}
		if err == nil && strings.Contains(list, ";tcp:") {
			t.Error("took a network's address")
		}
	})
}
