package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/notify"
	"holdfast/internal/policy"
)

func TestConfigure(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/1000")
	for _, c := range []struct {
		args   []string
		done   bool
		err    string
		stdout string // what it starts with
	}{
		{nil, false, "", ""},
		{[]string{"--version"}, true, "", "sample v1.2.3 (go1."},
		{[]string{"--explain", "--state", "/s"}, true, "", "system "},
		{[]string{"--help"}, true, "", "Usage:\n  sample [OPTION]...\n\nOptions:\n  --config FILE "},
		{[]string{"--nonsense"}, false, "there is no option --nonsense", ""},
		{[]string{"-state", "/s", "-nonsense=1"}, false, "there is no option --nonsense", ""},
		{[]string{"--state"}, false, "--state needs a value", ""},
		{[]string{"argument"}, false, `unexpected argument "argument"`, ""},
		{[]string{"--explain", "--state", "s"}, false, "--state: state: ", ""},
	} {
		p := &Program{Name: "sample", Version: "v1.2.3", Includes: "backends: none", Example: "sample --state /s", Settings: newSample().Settings}
		var stdout strings.Builder
		done, err := p.configure(c.args, &stdout)
		if done != c.done || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) || !strings.HasPrefix(stdout.String(), c.stdout) {
			t.Errorf("%q: got %v, %v, %q", c.args, done, err, &stdout)
		}
		if c.args != nil && c.args[0] == "--help" && !strings.HasSuffix(stdout.String(), "\nExample:\n  sample --state /s\n") {
			t.Errorf("--help: got %q", &stdout)
		}
		if c.args != nil && c.args[0] == "--version" && !strings.HasSuffix(stdout.String(), ") backends: none\n") {
			t.Errorf("--version: got %q", &stdout)
		}
	}
}

func TestComplainShowsTheNextStep(t *testing.T) {
	p := &Program{Name: "sample"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("a fact"), "sample: error: a fact\n"},
		{
			fmt.Errorf("tpm: %w", &fault.Error{Kind: fault.DeviceAbsent, Message: "a fact", Next: fault.Next{Do: fault.StartPCSCD}}),
			"sample: error: tpm: a fact\nsample: hint: " + fault.Next{Do: fault.StartPCSCD}.String() + "\n",
		},
		{&fault.Error{Message: "a fact", Hint: "a step"}, "sample: error: a fact\nsample: hint: a step\n"},
	} {
		var out strings.Builder
		if p.complain(&out, c.err); out.String() != c.want {
			t.Errorf("got %q, want %q", &out, c.want)
		}
	}
}

// closer records the order in which closers are closed.
type closer struct {
	name  string
	order *[]string
}

func (c closer) Close() error {
	*c.order = append(*c.order, c.name)
	return nil
}

func TestPartsCloseLastToFirst(t *testing.T) {
	var parts Parts
	var order []string
	for _, name := range []string{"first", "second", "third"} {
		parts.Own(closer{name, &order})
	}
	parts.close()
	if got := strings.Join(order, " "); got != "third second first" {
		t.Errorf("got %s", got)
	}
}

func TestOpenSockets(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path("passed.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	wanted := []notify.Socket{
		{Name: "passed", Path: path("passed.sock")}, {Name: "own", Path: path("own.sock")},
		{Name: "admin", Path: path("admin.sock"), Mode: 0o600}, {Name: "tcp", Loopback: true},
	}
	for _, c := range []struct {
		system bool
		own    fs.FileMode
	}{{false, 0o600}, {true, 0o666}} {
		list := append([]notify.Socket(nil), wanted...)
		setModes(list, c.system)
		parts := &Parts{Passed: map[string]net.Listener{"passed": l}}
		sockets, err := openSockets(list, parts, c.system)
		if err != nil {
			t.Fatal(err)
		}
		if len(sockets) != 3 || list[3].Mode != 0 {
			t.Errorf("system %v: got %v, modes of %+v", c.system, sockets, list)
		}
		for name, want := range map[string]fs.FileMode{"own": c.own, "admin": 0o600} {
			if info, err := os.Lstat(path(name + ".sock")); err != nil || info.Mode().Perm() != want {
				t.Errorf("system %v: %s: got %v, %v, want %v", c.system, name, info, err, want)
			}
		}
		parts.close()
		if _, err := os.Lstat(path("own.sock")); err == nil {
			t.Error("the socket is there after the end")
		}
	}
	sockets, err := openSockets([]notify.Socket{{Name: "own", Path: path("missing/own.sock")}}, &Parts{}, false)
	if err == nil || !strings.HasPrefix(err.Error(), "socket: ") {
		t.Errorf("a missing directory: got %v, %v", sockets, err)
	}
}

func TestLoadPolicy(t *testing.T) {
	builtIn := policy.UserDefault(7)
	if p, err := LoadPolicy("", policy.ParseFile, builtIn); p != builtIn || err != nil {
		t.Errorf("without a file: got %v, %v", p, err)
	}
	path := writeFile(t, t.TempDir()+"/policy.yaml", "version: 1\nrules:\n- allow: [status]\n  uids: [7]\n")
	if p, err := LoadPolicy(path, policy.ParseFile, builtIn); err != nil || p.Source() != path {
		t.Errorf("a good file: got %v, %v", p, err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if p, err := LoadPolicy(path, policy.ParseFile, builtIn); err == nil || !strings.HasPrefix(err.Error(), "policy: "+path) {
		t.Errorf("a file that others can write: got %v, %v", p, err)
	}
	if p, err := LoadPolicy(path+"x", policy.ParseFile, builtIn); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: got %v, %v", p, err)
	}
}
