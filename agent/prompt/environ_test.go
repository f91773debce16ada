package prompt

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
)

// TestVariables: what a pinentry gets is well formed, and nothing else.
func TestVariables(t *testing.T) {
	v := variables{}
	for _, entry := range []string{
		"TERM=xterm-256color", "TERM=second", "LANG=de_DE.UTF-8@euro", "DISPLAY=:0.1", "WAYLAND_DISPLAY=wayland-0", "HOME=/home/a b",
		"PATH=/tmp", "LD_PRELOAD=/tmp/x.so", "GPG_TTY=/dev/pts/1", "TERMINFO=/tmp", "novalue", "=", "", "SSH_TTY=",
	} {
		v.parse([]byte(entry))
	}
	want := variables{"TERM": "xterm-256color", "LANG": "de_DE.UTF-8@euro", "DISPLAY": ":0.1", "WAYLAND_DISPLAY": "wayland-0", "HOME": "/home/a b"}
	if len(v) != len(want) {
		t.Errorf("got %v, want %v", v, want)
	}
	for name, value := range want {
		if v[name] != value {
			t.Errorf("%s is %q, want %q", name, v[name], value)
		}
	}
	for _, bad := range []string{
		"TERM=", "TERM=/tmp/x", "TERM=../x", "TERM=a b", "TERM=-x", "TERM=" + strings.Repeat("x", 65), "LANG=../x", "LANG=C\n", "DISPLAY=a b",
		"DISPLAY=\x1b", "XAUTHORITY=relative", "HOME=~", "XDG_RUNTIME_DIR=/a\nb", "DBUS_SESSION_BUS_ADDRESS=tcp:host=x",
		"DBUS_SESSION_BUS_ADDRESS=unixexec:path=/bin/sh", "DBUS_SESSION_BUS_ADDRESS=unix:path=/a b", "DBUS_SESSION_BUS_ADDRESS=autolaunch:",
	} {
		v := variables{}
		if v.parse([]byte(bad)); len(v) != 0 {
			t.Errorf("%q became %v", bad, v)
		}
	}
}

func FuzzVariables(f *testing.F) {
	seeds := []string{"TERM=xterm", "DISPLAY=:0\x00TERM=a", "HOME=/\x00HOME=/b", "=\x00\x00", ""}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v := variables{}
		for entry := range bytes.SplitSeq(text, []byte{0}) {
			v.parse(entry)
		}
		for name, value := range v {
			if grammar, known := grammars[name]; !known || !grammar.MatchString(value) {
				t.Errorf("%q became %s=%q", text, name, value)
			}
		}
		if list := v.only("TERM"); len(list) > 1 || len(list) == 1 && list[0] != "TERM="+v["TERM"] {
			t.Errorf("only TERM is %q", list)
		}
	})
}

// TestEnvironOf reads a process's, and for one that hides its own that of whoever
// has started it.
func TestEnvironOf(t *testing.T) {
	s := daemon(t, "TERM=vt100", "SSH_CONNECTION=192.0.2.1 1 192.0.2.2 22", "SECRET=x")
	p, err := look(s.PID)
	if err != nil {
		t.Fatal(err)
	}
	if v := environOf(p); len(v) != 2 || v["TERM"] != "vt100" || !v.remote() {
		t.Errorf("got %v", v)
	}
	local, err := look(start(t, "wait", &syscall.SysProcAttr{Setsid: true}))
	if err != nil {
		t.Fatal(err)
	}
	if v := environOf(local); len(v) != 0 || v.remote() {
		t.Errorf("got %v", v)
	}
	p.PID, p.Parent = 1<<22, p.PID // of which nothing can be read
	if v := environOf(p); v["TERM"] != "vt100" {
		t.Errorf("got %v from the parent", v)
	}
}
