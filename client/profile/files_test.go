package profile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

func TestWriteLoadRemove(t *testing.T) {
	ca, _ := authority(t)
	dir := filepath.Join(t.TempDir(), "holdfast", "profiles")
	if profiles, faults, err := Load(dir); err != nil || len(profiles)+len(faults) != 0 {
		t.Errorf("no directory: got %v, %v, %v", profiles, faults, err)
	}
	want := complete(ca)
	for range 2 { // makes, then replaces
		if err := Write(dir, want); err != nil {
			t.Fatal(err)
		}
	}
	profiles, faults, err := Load(dir)
	if err != nil || len(faults) > 0 || len(profiles) != 1 || !reflect.DeepEqual(profiles["prod"], want) {
		t.Fatalf("got %+v, %v, %v, want %+v", profiles, faults, err, want)
	}
	for path, mode := range map[string]fs.FileMode{dir: 0o700, dir + "/prod.yaml": 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: got %v, %v, want mode %v", path, info.Mode(), err, mode)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v, want one file", entries, err)
	}
	if err := Remove(dir, "prod"); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir, "prod"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
	if profiles, faults, err := Load(dir); err != nil || len(profiles)+len(faults) != 0 {
		t.Errorf("removed: got %v, %v, %v", profiles, faults, err)
	}
}

// Write omits words that have their default.
func TestWriteLeavesOutWhatIsNotGiven(t *testing.T) {
	ca, _ := authority(t)
	dir := t.TempDir()
	p := &Profile{Name: "p", Key: "web", Cluster: Cluster{Server: "https://a", CertificateAuthorityData: ca}}
	if err := Write(dir, p); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(dir + "/p.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := "# Written by holdfast; a profile of holdfast-broker.\nkey: web\nmodes:\n  - proxy\ncluster:\n  server: https://a\n  certificate-authority-data: |\n    " + indented(ca) + "\n"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestWriteRefuses(t *testing.T) {
	ca, _ := authority(t)
	dir := t.TempDir()
	for about, spoil := range map[string]func(*Profile){
		"name":     func(p *Profile) { p.Name = "../x" },
		"server":   func(p *Profile) { p.Cluster.Server = "http://a" },
		"mode":     func(p *Profile) { p.Modes = []string{"x"} },
		"fraction": func(p *Profile) { p.Renewal.Fraction = -1 },
		"port":     func(p *Profile) { p.Proxy.Port = 65536 },
	} {
		p := complete(ca)
		spoil(p)
		if err := Write(dir, p); err == nil {
			t.Errorf("%s: written", about)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("got %v, want nothing", entries)
	}
	for _, err := range []error{Write("", complete(ca)), Remove("", "prod"), Remove(dir, "../prod")} {
		if err == nil {
			t.Error("got no error")
		}
	}
	if _, _, err := Load(""); err == nil {
		t.Error("Load of no directory: got no error")
	}
}

func TestLoadTellsGoodFromBad(t *testing.T) {
	ca, _ := authority(t)
	dir := t.TempDir()
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good := baseline(ca)
	put("good.yaml", strings.Replace(good, "port: 16443", "port: 1000", 1))
	put("bad.yaml", strings.Replace(good, "key:", "keys:", 1))
	put("Bad.yaml", good)
	put("one.yaml", good)
	put("two.yaml", good)
	put(".good.1.new", "x")
	put("good.yaml~", "x")
	put(".hidden.yaml", "x")
	if err := syscall.Mkfifo(dir+"/pipe.yaml", 0o600); err != nil {
		t.Fatal(err)
	}
	profiles, faults, err := Load(dir)
	if err != nil || len(profiles) != 1 || profiles["good"] == nil {
		t.Errorf("got %v, %v, want the good one", profiles, err)
	}
	for name, want := range map[string]string{
		"bad": dir + "/bad.yaml:1: a profile has no word", "Bad": dir + "/Bad.yaml:1: \"Bad\" is not a profile's name",
		"one": "one.yaml:1: proxy.port: profile two has port 16443 too", "two": "two.yaml:1: proxy.port: profile one has", "pipe": dir + "/pipe.yaml is not a regular file",
	} {
		if err := faults[name]; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want an error that starts %q", name, err, want)
		}
		delete(faults, name)
	}
	if len(faults) > 0 {
		t.Errorf("more faults: %v", faults)
	}
}

func TestLoadRefusesWhatOthersCanWrite(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test gives files away and has to run as root")
	}
	ca, _ := authority(t)
	cases := []struct {
		about  string
		change func(dir, file string) error
		want   string // empty: it loads
	}{
		{"as it is", func(_, _ string) error { return nil }, ""},
		{"read by all", func(_, f string) error { return os.Chmod(f, 0o444) }, ""},
		{"symbolic link", func(_, f string) error { return errors.Join(os.Rename(f, f+".real"), os.Symlink(f+".real", f)) }, ""},
		{"written by all", func(_, f string) error { return os.Chmod(f, 0o646) }, "mode 0646) is not safe: others can write it"},
		{"written by root's group", func(_, f string) error { return os.Chmod(f, 0o664) }, "mode 0664) is not safe: others can write it"},
		{"of somebody else", func(_, f string) error { return os.Chown(f, 1000, 0) }, "(owner uid 1000, mode 0600) is not safe: it has to be"},
		{"directory written by all", func(d, _ string) error { return os.Chmod(d, 0o777) }, "mode 0777) is not safe: others can write it"},
		{"directory of somebody else", func(d, _ string) error { return os.Chown(d, 1000, 0) }, "(owner uid 1000, mode 0700) is not safe"},
	}
	for _, c := range cases {
		dir := filepath.Join(t.TempDir(), "profiles")
		if err := errors.Join(Write(dir, complete(ca)), c.change(dir, dir+"/prod.yaml")); err != nil {
			t.Fatal(err)
		}
		profiles, faults, err := Load(dir)
		err = errors.Join(err, faults["prod"])
		if c.want == "" && (err != nil || profiles["prod"] == nil) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || len(profiles) > 0) {
			t.Errorf("%s: got %v, %v, want %q", c.about, profiles, err, c.want)
		}
	}
}

// The machine's broker is not root, and reads what its directory lets it read.
func TestWriteSharesAsTheDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test makes directories of other groups and has to run as root")
	}
	ca, _ := authority(t)
	for _, c := range []struct{ directory, file fs.FileMode }{{0o750, 0o640}, {0o755, 0o644}, {0o700, 0o600}} {
		dir := t.TempDir()
		if err := errors.Join(os.Chown(dir, 0, 4242), os.Chmod(dir, c.directory), Write(dir, complete(ca))); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir + "/prod.yaml")
		if err != nil {
			t.Fatal(err)
		}
		group := info.Sys().(*syscall.Stat_t).Gid
		if info.Mode().Perm() != c.file || (group == 4242) != (c.file != 0o600) {
			t.Errorf("in %v: got mode %v, group %d", c.directory, info.Mode(), group)
		}
	}
}

func TestDirectory(t *testing.T) {
	for _, c := range []struct{ xdg, home, want string }{
		{"/x", "/home/u", "/x/holdfast/profiles"},
		{"", "/home/u", "/home/u/.config/holdfast/profiles"},
		{"relative", "/home/u", "/home/u/.config/holdfast/profiles"},
		{"", "relative", ""},
	} {
		t.Setenv("XDG_CONFIG_HOME", c.xdg)
		t.Setenv("HOME", c.home)
		if got := Directory(false); got != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
		if got := Directory(true); got != "/etc/holdfast/profiles" {
			t.Errorf("system: got %q", got)
		}
	}
}
