package store

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdfast/internal/fault"
	"holdfast/test/pace"
)

// TestSetAside puts the file of a good record into a store and changes one thing
// about it. A file that cannot be used is reported by path and reason, is no
// key, keeps its name taken, and stays where it is.
func TestSetAside(t *testing.T) {
	_, web := stored(t, "web")
	_, other := stored(t, "other")
	rewrite := func(data []byte) func(string) error {
		return func(p string) error { return os.WriteFile(p, data, 0o600) }
	}
	for _, c := range []struct {
		name   string
		change func(path string) error
		want   string // in the reason; empty when the record stays good
	}{
		{"nothing", func(string) error { return nil }, ""},
		{"empty", rewrite(nil), "EOF"},
		{"cut", rewrite(web[:len(web)/2]), "unexpected EOF"},
		{"zeros", rewrite(make([]byte, len(web))), "invalid character"},
		{"another key's record", rewrite(other), `the record of key "other" of uid 1000`},
		{"a purpose that cannot have servers", rewrite(bytes.Replace(web, []byte(`"tls-client"`), []byte(`"tls-server"`), 1)), "bound to servers"},
		{"another algorithm", rewrite(bytes.Replace(web, []byte(`"ES256"`), []byte(`"ES384"`), 1)), "the public key is for ES256"},
		{"huge", func(p string) error { return os.Truncate(p, 1<<30) }, "larger than 262144 bytes"},
		{"readable by the group", func(p string) error { return os.Chmod(p, 0o640) }, "mode 0640, want 0600"},
		{"writable by all", func(p string) error { return os.Chmod(p, 0o602) }, "mode 0602"},
		{"read-only", func(p string) error { return os.Chmod(p, 0o400) }, "mode 0400"},
		{"setuid", func(p string) error { return os.Chmod(p, 0o600|fs.ModeSetuid) }, "want 0600"},
		{"another owner", func(p string) error { return os.Chown(p, 12345, 0) }, "owned by uid 12345, want uid 0"},
		{"symbolic link", func(p string) error { return errors.Join(os.Rename(p, p+"x"), os.Symlink(p+"x", p)) }, "a symbolic link"},
		{"dangling link", func(p string) error { return errors.Join(os.Remove(p), os.Symlink("/nowhere", p)) }, "a symbolic link"},
		{"hard link", func(p string) error { return os.Link(p, filepath.Join(filepath.Dir(p), "..", "..", "x")) }, "2 hard links, want 1"},
		{"FIFO", func(p string) error { return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600)) }, "not a regular file"},
		{"directory", func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) }, "not a regular file"},
		{"device", func(p string) error {
			return errors.Join(os.Remove(p), syscall.Mknod(p, syscall.S_IFCHR|0o600, 1<<8|3))
		}, "not a regular file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := fresh(t)
			open(t, dir).Close()
			path := place(t, dir, "web.json", web)
			if err := c.change(path); err != nil {
				t.Fatal(err)
			}
			s := open(t, dir)
			_, ok := s.Get(1000, "web")
			if c.want == "" {
				if !ok || len(s.Problems()) > 0 {
					t.Errorf("the good record is not used: %+v", s.Problems())
				}
				return
			}
			p := problem(t, s, path)
			if ok || p.Path == "" || !strings.Contains(p.Reason, c.want) {
				t.Errorf("used %v, problem %+v, want reason %q for key web of 1000", ok, p, c.want)
			}
			wantTaken(t, s, path)
		})
	}
}

// problem returns the problem with a path.
func problem(t *testing.T, s *Store, path string) Problem {
	t.Helper()
	for _, p := range s.Problems() {
		if p.Path == path {
			return p
		}
	}
	t.Errorf("no problem with %s in %+v", path, s.Problems())
	return Problem{}
}

// wantTaken fails unless the file at web's place blocks its name until it is
// moved away, untouched.
func wantTaken(t *testing.T, s *Store, path string) {
	t.Helper()
	before, err := os.Lstat(path)
	if err != nil {
		t.Fatalf("the file is gone: %v", err)
	}
	if err := s.Create(good("web")); fault.KindOf(err) != fault.BadRequest || !strings.Contains(err.Error(), "has the place of key") {
		t.Errorf("Create over it: %v, want a refusal", err)
	}
	if err := s.Delete(1000, "web"); err == nil {
		t.Error("Delete of a file that is no key succeeded")
	}
	if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) || before.ModTime() != after.ModTime() {
		t.Errorf("the file was touched: %v", err)
	}
	if err := os.Rename(path, filepath.Join(t.TempDir(), "moved")); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(good("web")); err != nil {
		t.Errorf("Create after it was moved: %v", err)
	}
}

// TestStrangeNames puts files and directories where no key's would be.
func TestStrangeNames(t *testing.T) {
	_, web := stored(t, "web")
	dir := fresh(t)
	s := open(t, dir)
	if err := s.Create(good("web")); err != nil {
		t.Fatal(err)
	}
	s.Close()
	at := func(name string) string { return filepath.Join(dir, "keys", name) }
	want := map[string]string{
		at("1000/WEB.json"):          "not that of a key",
		at("1000/web"):               "not that of a key",
		at("1000/web.json~"):         "not that of a key",
		at("1000/..json"):            "not a file of this agent",
		at("1000/.web.json.swp"):     "not a file of this agent",
		at("1000/.gone.json.old"):    "the previous version of a record that is missing",
		at("1000/.Web.json.new"):     "not a file of this agent",
		at("1000/-web.json"):         "not that of a key",
		at("1000/" + "x.0.json"):     "not that of a key",
		at("README"):                 "not a uid",
		at("01000/web.json"):         "",
		at("+1000/web.json"):         "",
		at("4294967296/web.json"):    "",
		at("1001/web.json"):          "of uid 1000",
		at("1000/deep/web.json"):     "",
		at("1000/.more.json.new/x"):  "",
		at("1002/.hidden/secret"):    "",
		at("1000/" + "web.json.old"): "not that of a key",
	}
	for path := range want {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, web, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for path, reason := range want {
		if reason == "" { // the directory is the problem
			delete(want, path)
			want[filepath.Dir(path)] = "not"
		}
	}
	s = open(t, dir)
	got := s.Problems()
	for _, p := range got {
		if reason, ok := want[p.Path]; !ok || !strings.Contains(p.Reason, reason) {
			t.Errorf("problem %+v, want reason %q (%v)", p, reason, ok)
		}
		delete(want, p.Path)
		if !exists(p.Path) {
			t.Errorf("%s was deleted", p.Path)
		}
	}
	if len(want) > 0 {
		t.Errorf("not reported: %v", want)
	}
	if names(s) != "web" {
		t.Errorf("keys %q, want web alone", names(s))
	}
	gone := good("gone")
	if err := s.Create(gone); fault.KindOf(err) != fault.BadRequest {
		t.Errorf("Create of a key whose previous version is there: %v, want a refusal", err)
	}
}

func TestOwnersDirectoryOfOthers(t *testing.T) {
	dir := fresh(t)
	s := open(t, dir)
	if err := s.Create(good("web")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(s.keys.path(id{1000, "web"})), 0o755); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s)
	if p := problem(t, s, filepath.Join(dir, "keys", "1000")); !strings.Contains(p.Reason, "mode 0755, want 0700") || names(s) != "" {
		t.Errorf("problem %+v and keys %q", p, names(s))
	}
	if err := s.Create(good("more")); err == nil || !strings.Contains(err.Error(), "mode 0755") {
		t.Errorf("Create in it: %v, want a refusal", err)
	}
}

// TestInterruptedWrites makes what each instant of a write leaves, and wants it
// gone, with the right version in use.
func TestInterruptedWrites(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(path string, r Record) error
		want uint64 // generation of web
	}{
		{"create, half written", func(p string, _ Record) error {
			return os.WriteFile(sibling(filepath.Join(filepath.Dir(p), "new.json"), incoming), []byte("{"), 0o600)
		}, 1},
		{"create, linked", func(p string, _ Record) error { return os.Link(p, sibling(p, incoming)) }, 1},
		{"replace, half written", func(p string, _ Record) error { return os.WriteFile(sibling(p, incoming), []byte("{"), 0o600) }, 1},
		{"replace, old one kept", func(p string, _ Record) error { return os.Link(p, sibling(p, outgoing)) }, 1},
		{"replace, in place", func(p string, r Record) error {
			r.Generation = 2
			return errors.Join(os.Link(p, sibling(p, outgoing)), os.WriteFile(p+"x", must(encode(r)), 0o600), os.Rename(p+"x", p))
		}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, fresh(t))
			if err := s.Create(good("web")); err != nil {
				t.Fatal(err)
			}
			r, _ := s.Get(1000, "web")
			if err := c.make(s.keys.path(id{1000, "web"}), r); err != nil {
				t.Fatal(err)
			}
			s = reopen(t, s)
			clean(t, s)
			if got, _ := s.Get(1000, "web"); got.Generation != c.want || names(s) != "web" {
				t.Errorf("keys %q, generation %d, want web in generation %d", names(s), got.Generation, c.want)
			}
		})
	}
}

// TestPreviousVersionOutlivesADamagedOne: it may be all that is left of the key.
func TestPreviousVersionOutlivesADamagedOne(t *testing.T) {
	s := open(t, fresh(t))
	if err := s.Create(good("web")); err != nil {
		t.Fatal(err)
	}
	path := s.keys.path(id{1000, "web"})
	old := sibling(path, outgoing)
	if err := errors.Join(os.Rename(path, old), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s)
	problem(t, s, path)
	problem(t, s, old)
}

// TestMutants changes one byte of a good record at every place: the store never
// uses a record that is not canonical, whatever the byte.
func TestMutants(t *testing.T) {
	want, data := stored(t, "web")
	rng := rand.New(rand.NewPCG(5, 6))
	used, perByte := 0, pace.Share(1, 4)
	for i := range data {
		for range perByte {
			mutant := bytes.Clone(data)
			mutant[i] ^= byte(1 + rng.IntN(255))
			r, err := parse(mutant)
			if err != nil {
				continue
			}
			used++
			if !bytes.Equal(must(encode(r)), mutant) {
				t.Fatalf("byte %d: a record in another form was used", i)
			}
			if r.Purpose != want.Purpose || r.Algorithm != want.Algorithm || !bytes.Equal(r.Material.Public, want.Material.Public) {
				t.Fatalf("byte %d: the use of the key changed", i)
			}
		}
	}
	t.Logf("%d of %d mutants were records: a letter of a free text, a digit of a number", used, perByte*len(data))
}

func TestReload(t *testing.T) {
	s := open(t, fresh(t))
	if err := s.Create(good("web")); err != nil {
		t.Fatal(err)
	}
	_, other := stored(t, "other")
	place(t, s.dir, "other.json", other)
	place(t, s.dir, "bad.json", []byte("x"))
	if names(s) != "web" {
		t.Errorf("keys %q before Reload, want web", names(s))
	}
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if names(s) != "other web" || len(s.Problems()) != 1 {
		t.Errorf("keys %q and %d problems, want other, web and one problem", names(s), len(s.Problems()))
	}
	if err := os.Rename(s.keys.root, s.keys.root+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err == nil {
		t.Error("Reload without a directory succeeded")
	}
	if names(s) != "other web" || len(s.Problems()) != 1 {
		t.Errorf("a Reload that failed left keys %q and %d problems", names(s), len(s.Problems()))
	}
}

func TestFileChangedUnderTheAgent(t *testing.T) {
	s := open(t, fresh(t))
	if err := s.Create(good("web")); err != nil {
		t.Fatal(err)
	}
	r, _ := s.Get(1000, "web")
	edited := r.clone()
	edited.TLS12 = false
	place(t, s.dir, "web.json", must(encode(edited)))
	for name, err := range map[string]error{"Replace": s.Replace(r), "Delete": s.Delete(1000, "web")} {
		if err == nil || !strings.Contains(err.Error(), "changed by another program") {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
	if err := errors.Join(s.Reload(), s.Replace(edited)); err != nil {
		t.Errorf("after Reload: %v", err)
	}
}

func TestFileInPlaceOfANewKey(t *testing.T) {
	s := open(t, fresh(t))
	path := place(t, s.dir, "web.json", []byte("mine"))
	if err := s.Create(good("web")); err == nil {
		t.Error("Create over a file succeeded")
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "mine" {
		t.Errorf("the file now holds %q (%v)", data, err)
	}
}

// FuzzRecord: what is used is written exactly as it was read.
func FuzzRecord(f *testing.F) {
	seeds := [][]byte{[]byte("{}\n"), nil}
	for _, data := range records(f) {
		seeds = append(seeds, data, bytes.Replace(data, []byte(`"version": 1,`), []byte("\"version\": 1,\n  \"Version\": 1,"), 1))
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parse(data)
		if err != nil {
			return
		}
		if again := must(encode(r)); !bytes.Equal(again, data) {
			t.Errorf("used a record that is written otherwise:\n%s\n%s", data, again)
		}
		c := r.clone()
		if err := c.check(); err != nil {
			t.Errorf("a clone fails the checks: %v", err)
		}
	})
}
