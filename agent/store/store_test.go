package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// fresh returns a state directory that is not there yet.
func fresh(t testing.TB) string { return filepath.Join(t.TempDir(), "state") }

// quick is fresh in memory, where fsync costs nothing, for tests that write
// thousands of files.
func quick(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "store-test-")
	if err != nil {
		return fresh(t)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "state")
}

// open opens a store that the test closes.
func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// reopen closes s and opens its directory again, as a restart does.
func reopen(t testing.TB, s *Store) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	return open(t, s.dir)
}

// names returns what List has, for comparison.
func names(s *Store) string {
	var list []string
	for _, r := range s.List() {
		list = append(list, r.Name)
	}
	return strings.Join(list, " ")
}

// clean fails when the store has problems or its directories hold anything but
// records.
func clean(t testing.TB, s *Store) {
	t.Helper()
	for _, p := range s.Problems() {
		t.Errorf("set aside: %s: %s", p.Path, p.Reason)
	}
	left, err := filepath.Glob(filepath.Join(s.dir, "*", "*", ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %q (%v)", left, err)
	}
}

func TestLifeOfARecord(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "a", "state"))
	if err := s.Create(good("web")); err != nil {
		t.Fatalf("Create: %v", err)
	}
	s = reopen(t, s)
	r, ok := s.Get(1000, "web")
	if want, _ := stored(t, "web"); !ok || r.Generation != 1 || r.Owner != want.Owner || string(r.Material.Public) != string(want.Material.Public) {
		t.Fatalf("Get after a restart: %+v, %v", r, ok)
	}
	r.Chain = nil
	if err := s.Replace(r); err != nil {
		t.Fatalf("Replace: %v", err)
	}
	s = reopen(t, s)
	if r, _ := s.Get(1000, "web"); r.Generation != 2 || r.Chain != nil {
		t.Errorf("after Replace: generation %d and %d certificates, want 2 and 0", r.Generation, len(r.Chain))
	}
	clean(t, s)
	if err := s.Delete(1000, "web"); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	s = reopen(t, s)
	if _, ok := s.Get(1000, "web"); ok {
		t.Error("the deleted key is back")
	}
	clean(t, s)
}

func TestCallersGetCopies(t *testing.T) {
	s := open(t, fresh(t))
	made := good("web")
	if err := s.Create(made); err != nil {
		t.Fatal(err)
	}
	got, _ := s.Get(1000, "web")
	want := must(encode(got))
	for _, r := range []Record{made, got, s.List()[0]} {
		r.Servers[0].Address, r.Chain[0][0], r.Material.Public[0] = "changed:1", 0, 0
	}
	if now, _ := s.Get(1000, "web"); !bytes.Equal(must(encode(now)), want) {
		t.Error("a caller changed what is stored")
	}
}

func TestNamesBelongToTheirOwner(t *testing.T) {
	s := open(t, fresh(t))
	for _, uid := range []uint32{1001, 0, 1000, 4294967294} {
		r := good("web")
		r.Owner = Owner{UID: uid}
		if err := s.Create(r); err != nil {
			t.Fatalf("uid %d: %v", uid, err)
		}
	}
	s = reopen(t, s)
	var uids []uint32
	for _, r := range s.List() {
		uids = append(uids, r.Owner.UID)
	}
	if want := []uint32{0, 1000, 1001, 4294967294}; !slices.Equal(uids, want) {
		t.Errorf("List has the keys of %v, want %v", uids, want)
	}
	if err := s.Delete(1000, "web"); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Get(1001, "web"); !ok {
		t.Error("deleting one owner's key took another's")
	}
}

func TestRefusedChanges(t *testing.T) {
	s := open(t, fresh(t))
	if err := s.Create(good("web")); err != nil {
		t.Fatal(err)
	}
	r, _ := s.Get(1000, "web")
	stale, absent, wrong := r.clone(), r.clone(), r.clone()
	stale.Generation--
	absent.Name = "absent"
	wrong.Algorithm = keys.ES384
	foreign := good("foreign")
	foreign.Name = "Foreign"
	for _, c := range []struct {
		name string
		err  error
		want fault.Kind
		text string
	}{
		{"create again", s.Create(good("web")), fault.BadRequest, `key "web" already exists`},
		{"create with a bad name", s.Create(foreign), fault.BadRequest, "not a key name"},
		{"replace what is not there", s.Replace(absent), fault.Denied, "no such key"},
		{"replace an older generation", s.Replace(stale), fault.Busy, "changed meanwhile"},
		{"replace with nonsense", s.Replace(wrong), fault.BadRequest, "ES256"},
		{"delete what is not there", s.Delete(1000, "absent"), fault.Denied, "no such key"},
		{"delete another owner's", s.Delete(1001, "web"), fault.Denied, "no such key"},
	} {
		if c.err == nil || fault.KindOf(c.err) != c.want || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("%s: %q %v, want %q %q", c.name, fault.KindOf(c.err), c.err, c.want, c.text)
		}
	}
	s = reopen(t, s)
	if now, _ := s.Get(1000, "web"); !same(now, r) || names(s) != "web" {
		t.Errorf("a refused change left a mark: %s", names(s))
	}
	clean(t, s)
}

func TestOnlyOneAgentPerDirectory(t *testing.T) {
	s := open(t, fresh(t))
	_, err := Open(s.dir)
	if err == nil || !strings.Contains(err.Error(), "already running, pid ") || !strings.Contains(err.Error(), s.dir) {
		t.Errorf("second Open: %v, want it to name the directory and the pid", err)
	}
	if err := s.Create(good("web")); err != nil {
		t.Errorf("the first agent: %v", err)
	}
	if s = reopen(t, s); names(s) != "web" {
		t.Errorf("keys %q, want web", names(s))
	}
}

// TestOpenRefusesDirectory starts from a directory that is taken and changes
// one thing.
func TestOpenRefusesDirectory(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(dir string) error
		want   string
	}{
		{"nothing", func(string) error { return nil }, ""},
		{"group", func(d string) error { return os.Chmod(d, 0o750) }, "mode 0750, want 0700"},
		{"others", func(d string) error { return os.Chmod(d, 0o701) }, "mode 0701"},
		{"sticky", func(d string) error { return os.Chmod(d, 0o700|os.ModeSticky) }, "want 0700"},
		{"owner", func(d string) error { return os.Chown(d, 12345, 0) }, "owned by uid 12345, want uid 0"},
		{"file", func(d string) error { return errors.Join(os.Remove(d), os.WriteFile(d, nil, 0o700)) }, "directory"},
		{"keys of others", func(d string) error { return os.Mkdir(filepath.Join(d, "keys"), 0o755) }, "mode 0755"},
		{"keys elsewhere", func(d string) error { return os.Symlink("/", filepath.Join(d, "keys")) }, "not a directory"},
		{"lock elsewhere", func(d string) error { return os.Symlink("/dev/null", filepath.Join(d, "lock")) }, "lock"},
		{"lock of others", func(d string) error { return os.WriteFile(filepath.Join(d, "lock"), nil, 0o644) }, "mode 0644"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			if err := errors.Join(os.Mkdir(dir, 0o700), c.change(dir)); err != nil {
				t.Fatal(err)
			}
			s, err := Open(dir)
			if err == nil {
				s.Close()
			}
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir)):
				t.Errorf("%v, want %q and the path", err, c.want)
			}
		})
	}
}

func TestOpenFollowsALinkToTheDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "private"), 0o700), os.Symlink("private", filepath.Join(dir, "state"))); err != nil {
		t.Fatal(err)
	}
	s := open(t, filepath.Join(dir, "state"))
	if err := s.Create(good("web")); err != nil {
		t.Error(err)
	}
}
