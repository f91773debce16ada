package guard

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckSocketDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test gives directories away and has to run as root")
	}
	cases := []struct {
		about        string
		change       func(parent, directory string) error
		user, system string // part of the error of each mode; empty when there is none
	}{
		{"as it is", func(_, d string) error { return nil }, "", ""},
		{"listed by others", func(_, d string) error { return os.Chmod(d, 0o755) }, "mode 0755) is not safe", ""},
		{"searched by the group", func(_, d string) error { return os.Chmod(d, 0o710) }, "mode 0710) is not safe", ""},
		{"written by the group", func(_, d string) error { return os.Chmod(d, 0o770) }, "mode 0770) is not safe", "mode 0770) is not safe"},
		{"written by all", func(_, d string) error { return os.Chmod(d, 0o777) }, "mode 0777) is not safe", "mode 0777) is not safe"},
		{"sticky and written by all", func(_, d string) error { return os.Chmod(d, 0o777|os.ModeSticky) }, "mode 0777", "mode 0777"},
		{"of somebody else", func(_, d string) error { return os.Chown(d, 1000, 1000) }, "(owner uid 1000, mode 0700)", "(owner uid 1000, mode 0700)"},
		{"symbolic link", func(_, d string) error {
			return errors.Join(os.Rename(d, d+".real"), os.Symlink(d+".real", d))
		}, "it is a symbolic link", "it is a symbolic link"},
		{"file", func(_, d string) error { return errors.Join(os.Remove(d), os.WriteFile(d, nil, 0o700)) }, "it is not a directory", "it is not a directory"},
		{"missing", func(_, d string) error { return os.Remove(d) }, "no such file", "no such file"},
		{"parent written by all", func(p, _ string) error { return os.Chmod(p, 0o777) }, "others can write it, and it is not sticky", "not sticky"},
		{"parent written by the group", func(p, _ string) error { return os.Chmod(p, 0o775) }, "not sticky", "not sticky"},
		{"parent sticky", func(p, _ string) error { return os.Chmod(p, 0o777|os.ModeSticky) }, "", ""},
		{"parent of somebody else", func(p, _ string) error { return os.Chown(p, 1000, 1000) }, "(owner uid 1000", "(owner uid 1000"},
		{"parent reached by a link", func(p, _ string) error {
			return errors.Join(os.Rename(p, p+".real"), os.Symlink(p+".real", p))
		}, "", ""},
		{"parent reached by a link into a bad place", func(p, _ string) error {
			bad := p + ".bad"
			return errors.Join(os.Mkdir(bad, 0o777), os.Chmod(bad, 0o777), os.Rename(p, bad+"/real"), os.Symlink(bad+"/real", p))
		}, "not sticky", "not sticky"},
		{"link in a bad place", func(p, _ string) error {
			bad := p + ".bad"
			return errors.Join(os.Mkdir(bad, 0o777), os.Chmod(bad, 0o777), os.Rename(p, p+".real"),
				os.Symlink(p+".real", bad+"/link"), os.Symlink("p.bad/./../p.bad/link", p))
		}, "not sticky", "not sticky"},
		{"link of somebody else", func(p, _ string) error {
			return errors.Join(os.Rename(p, p+".real"), os.Symlink("p.real", p), os.Lchown(p, 1000, 1000))
		}, "(owner uid 1000", "(owner uid 1000"},
		{"link with dots", func(p, _ string) error {
			return errors.Join(os.Rename(p, p+".real"), os.Symlink("../"+filepath.Base(filepath.Dir(p))+"/p.real", p))
		}, "", ""},
		{"link to itself", func(p, _ string) error {
			return errors.Join(os.Rename(p, p+".real"), os.Symlink("p", p))
		}, "too many", "too many"},
	}
	for _, c := range cases {
		parent := filepath.Join(t.TempDir(), "p")
		directory := filepath.Join(parent, "d")
		if err := errors.Join(os.Mkdir(parent, 0o755), os.Mkdir(directory, 0o700), c.change(parent, directory)); err != nil {
			t.Fatalf("%s: %v", c.about, err)
		}
		for system, want := range map[bool]string{false: c.user, true: c.system} {
			err := CheckSocketDirectory(filepath.Join(directory, "agent.sock"), system)
			if want == "" && err != nil {
				t.Errorf("%s, system %t: got %v", c.about, system, err)
			}
			if want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), parent)) {
				t.Errorf("%s, system %t: got %v, want an error with the path and %q", c.about, system, err, want)
			}
		}
	}
}

func TestCheckSocketDirectoryWantsAPath(t *testing.T) {
	for _, path := range []string{"", "agent.sock", "@holdfast", "/" + strings.Repeat("d", MaxSocketPath)} {
		if err := CheckSocketDirectory(path, true); err == nil {
			t.Errorf("%q passed", path)
		}
	}
}

// The kernel refuses such a way before checkWay sees it, unless another process makes it
// in between.
func TestCheckWayEnds(t *testing.T) {
	path := t.TempDir() + "/p"
	if err := os.Symlink("p", path); err != nil {
		t.Fatal(err)
	}
	if err := checkWay(path); err == nil || !strings.Contains(err.Error(), "too many symbolic links") {
		t.Errorf("got %v, want an error about the links", err)
	}
}

func TestCheckPrivate(t *testing.T) {
	directory := t.TempDir()
	for mode, ok := range map[os.FileMode]bool{0o700: true, 0o500: true, 0o750: false, 0o701: false, 0o777: false} {
		if err := os.Chmod(directory, mode); err != nil {
			t.Fatal(err)
		}
		if err := CheckPrivate(directory); (err == nil) != ok {
			t.Errorf("mode %o: got %v, want fine %t", mode, err, ok)
		}
	}
}

func TestCheckProgram(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test gives directories away and has to run as root")
	}
	for about, c := range map[string]struct {
		change func(directory, program string) error
		want   string // part of the error; empty when there is none
	}{
		"as it is":                           {func(_, _ string) error { return nil }, ""},
		"written by the group":               {func(_, p string) error { return os.Chmod(p, 0o775) }, "others can write it"},
		"of somebody else":                   {func(_, p string) error { return os.Chown(p, 1000, 1000) }, "owner uid 1000"},
		"in a directory that others write":   {func(d, _ string) error { return os.Chmod(d, 0o777) }, "not sticky"},
		"in a directory that the group does": {func(d, _ string) error { return os.Chmod(d, 0o775) }, "not sticky"},
		"in a directory of somebody else":    {func(d, _ string) error { return os.Chown(d, 1000, 1000) }, "owner uid 1000"},
		"missing":                            {func(_, p string) error { return os.Remove(p) }, "no such file"},
		"directory":                          {func(_, p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o755)) }, "not a regular file"},
		"a link": {func(d, p string) error {
			return errors.Join(os.Rename(p, d+"/real"), os.Symlink("real", p))
		}, ""},
		"a link of somebody else": {func(d, p string) error {
			return errors.Join(os.Rename(p, d+"/real"), os.Symlink("real", p), os.Lchown(p, 1000, 1000))
		}, "owner uid 1000"},
		"a link into a bad place": {func(d, p string) error {
			bad := d + "/bad"
			return errors.Join(os.Mkdir(bad, 0o755), os.Chmod(bad, 0o777), os.Rename(p, bad+"/real"), os.Symlink("bad/real", p))
		}, "not sticky"},
	} {
		directory := filepath.Join(t.TempDir(), "d")
		program := filepath.Join(directory, "program")
		if err := errors.Join(os.Mkdir(directory, 0o755), os.WriteFile(program, nil, 0o755), c.change(directory, program)); err != nil {
			t.Fatalf("%s: %v", about, err)
		}
		err := CheckProgram(program)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", about, err, c.want)
		}
	}
	if err := CheckProgram("program"); err == nil {
		t.Error("a path that is not absolute passed")
	}
}
