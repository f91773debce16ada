package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// faulty is a disk whose calls fail from the nth on, or the nth only.
type faulty struct {
	system
	fail   error
	only   string // every call on a path that holds this fails
	at     int    // the call that fails, counted from 1; 0 for none
	after  bool   // those after it fail too
	short  bool   // a write that fails has written half
	garble bool   // writes succeed and store something else
	calls  int
	steps  []string // the calls, each with the last part of the path that it was made on
}

// step counts a call and says whether it fails.
func (d *faulty) step(call, path string) error {
	d.calls++
	d.steps = append(d.steps, call+" "+filepath.Base(path))
	if d.only != "" && strings.Contains(path, d.only) {
		return d.fail
	}
	if d.at != 0 && (d.calls == d.at || d.after && d.calls > d.at) {
		return d.fail
	}
	return nil
}

func (d *faulty) open(path string, flag int) (handle, error) {
	if err := d.step("open", path); err != nil {
		return nil, err
	}
	h, err := d.system.open(path, flag)
	if err != nil {
		return nil, err // not a handle that holds a nil *os.File
	}
	return &faultyHandle{h, d, path}, nil
}

func (d *faulty) link(from, to string) error {
	return d.then("link", to, func() error { return d.system.link(from, to) })
}

func (d *faulty) rename(from, to string) error {
	return d.then("rename", to, func() error { return d.system.rename(from, to) })
}

func (d *faulty) remove(path string) error {
	return d.then("remove", path, func() error { return d.system.remove(path) })
}

func (d *faulty) mkdir(path string) error {
	return d.then("mkdir", path, func() error { return d.system.mkdir(path) })
}

// then makes a call unless it is to fail.
func (d *faulty) then(name, path string, call func() error) error {
	if err := d.step(name, path); err != nil {
		return err
	}
	return call()
}

type faultyHandle struct {
	handle
	disk *faulty
	path string
}

func (h *faultyHandle) Write(b []byte) (int, error) {
	if err := h.disk.step("write", h.path); err != nil {
		if h.disk.short {
			h.handle.Write(b[:len(b)/2])
			return len(b) / 2, err
		}
		return 0, err
	}
	if h.disk.garble {
		b = bytes.ToUpper(b)
	}
	return h.handle.Write(b)
}

func (h *faultyHandle) Sync() error {
	if err := h.disk.step("fsync", h.path); err != nil {
		return err
	}
	return h.handle.Sync()
}

func (h *faultyHandle) Close() error {
	return errors.Join(h.disk.step("close", h.path), h.handle.Close())
}

func (h *faultyHandle) Read(b []byte) (int, error) {
	if err := h.disk.step("read", h.path); err != nil {
		return 0, err
	}
	return h.handle.Read(b)
}

func (h *faultyHandle) Stat() (fs.FileInfo, error) {
	if err := h.disk.step("fstat", h.path); err != nil {
		return nil, err
	}
	return h.handle.Stat()
}

// operations are the changes that faults are put into. Each starts on a store
// that holds keys and secrets "web" and "other" in generation 1.
var operations = map[string]func(*Store) error{
	"create":             func(s *Store) error { return s.Create(good("new")) },
	"create first":       func(s *Store) error { r := good("new"); r.Owner.UID = 7; return s.Create(r) },
	"replace":            func(s *Store) error { r, _ := s.Get(1000, "web"); r.Chain = nil; return s.Replace(r) },
	"delete":             func(s *Store) error { return s.Delete(1000, "web") },
	"count a PIN's try":  func(s *Store) error { return s.SpendPINTry(1000, []byte("web")) },
	"seal":               func(s *Store) error { return s.PutSealed(secret("new"), false) },
	"seal first":         func(s *Store) error { r := secret("new"); r.Owner.UID = 7; return s.PutSealed(r, true) },
	"seal again":         func(s *Store) error { r := secret("web"); r.RequestID = ""; return s.PutSealed(r, true) },
	"delete sealed":      func(s *Store) error { return s.DeleteSealed(1000, "web") },
	"forget a PIN's try": func(s *Store) error { return s.ClearPINTries(1000, []byte("web")) },
}

// TestFaultAtEverySystemCall lets each call of each operation fail in turn. An
// operation that reports an error has changed nothing, one that does not has done
// all, and a restart sees the same. Only a disk that also fails while a change is
// taken back may keep the change.
func TestFaultAtEverySystemCall(t *testing.T) {
	for name, operation := range operations {
		_, _, done, _ := faultAt(t, faulty{}, 0, operation)
		for _, f := range []faulty{
			{fail: syscall.ENOSPC},
			{fail: syscall.EIO, short: true},
			{fail: syscall.EROFS, after: true},
		} {
			t.Run(fmt.Sprintf("%s %v", name, f.fail), func(t *testing.T) {
				for n, more := 1, true; more; n++ {
					calls, before, after, err := faultAt(t, f, n, operation)
					if more = n <= calls; !more && n < 8 {
						t.Errorf("only %d calls were made to fail", calls)
					}
					kept := f.after && after == done
					switch {
					case err == nil && after != done:
						t.Errorf("call %d: no error, and yet\n%s", n, after)
					case err != nil && !errors.Is(err, f.fail):
						t.Errorf("call %d: the error hides its cause: %v", n, err)
					case err != nil && after != before && !kept:
						t.Errorf("call %d: %v, and yet it changed\n%s\nto\n%s", n, err, before, after)
					}
				}
			})
		}
	}
}

// faultAt lets the nth call of an operation fail, and tries again after a restart
// when that left all as it was. It returns how many calls were made and what the
// store held before and after.
func faultAt(t *testing.T, disk faulty, n int, operation func(*Store) error) (calls int, before, after string, failed error) {
	t.Helper()
	s, err := openOn(&disk, quick(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, key := range []string{"web", "other"} {
		if err := errors.Join(s.Create(good(key)), s.PutSealed(secret(key), false), s.SpendPINTry(1000, []byte(key))); err != nil {
			t.Fatal(err)
		}
	}
	before = snapshot(s)
	disk.calls, disk.at = 0, n
	failed = operation(s)
	calls, disk.at = disk.calls, 0
	held := snapshot(s)
	s = reopen(t, s)
	clean(t, s)
	after = snapshot(s)
	if !disk.after && held != after {
		t.Errorf("call %d: %v\n%s\nand after a restart\n%s", n, failed, held, after)
	}
	if failed != nil && after == before {
		if err := operation(s); err != nil {
			t.Errorf("call %d: a second try: %v", n, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return calls, before, after, failed
}

// TestDiskThatStoresSomethingElse is found by reading back, before the key is
// acknowledged.
func TestDiskThatStoresSomethingElse(t *testing.T) {
	disk := faulty{}
	s, err := openOn(&disk, quick(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Create(good("web")); err != nil {
		t.Fatal(err)
	}
	before := snapshot(s)
	disk.garble = true
	for _, name := range []string{"create", "replace", "count a PIN's try"} {
		if err := operations[name](s); err == nil || !strings.Contains(err.Error(), "not what was written") {
			t.Errorf("%s: %v, want it to notice", name, err)
		}
	}
	disk.garble = false
	s = reopen(t, s)
	clean(t, s)
	if after := snapshot(s); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

// TestLedgerThatCannotForget: a key that is made after one of its name was deleted
// while the ledger could not be written is not taken for an older file.
func TestLedgerThatCannotForget(t *testing.T) {
	disk := faulty{fail: syscall.ENOSPC}
	s, err := openOn(&disk, quick(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := errors.Join(s.Create(good("web")), operations["replace"](s)); err != nil {
		t.Fatal(err)
	}
	disk.only = "ledger.json"
	if err := s.SpendPINTry(1000, nil); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a PIN's try: %v, want the ledger's disk full", err)
	}
	if err := errors.Join(s.Delete(1000, "web"), s.Create(good("web"))); err != nil {
		t.Fatal(err)
	}
	disk.only = ""
	s = reopen(t, s)
	clean(t, s)
	r, ok := s.Get(1000, "web")
	if !ok || r.Generation != 3 {
		t.Fatalf("generation %d (%v), want 3", r.Generation, ok)
	}
	if err := s.Replace(r); err != nil {
		t.Errorf("the new key cannot be changed: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestOrderOfCalls: nothing gets its name before its content is on the disk, and
// nothing is acknowledged before its name is and it was read back. No kill shows
// this, a power cut would.
func TestOrderOfCalls(t *testing.T) {
	for name, want := range map[string][]string{
		"create": {"write .new.json.new", "fsync .new.json.new", "link new.json", "remove .new.json.new", "fsync 1000", "read new.json",
			"fsync .ledger.json.new", "rename ledger.json", "fsync state"},
		"create first": {"mkdir 7", "fsync keys", "fsync .new.json.new", "link new.json", "fsync 7", "read new.json"},
		"replace": {"write .web.json.new", "fsync .web.json.new", "link .web.json.old", "rename web.json", "fsync 1000", "read web.json",
			"remove .web.json.old", "fsync .ledger.json.new"},
		"delete":            {"remove web.json", "fsync 1000", "fsync .ledger.json.new"},
		"count a PIN's try": {"fsync .ledger.json.new", "rename ledger.json", "fsync state"},
	} {
		t.Run(name, func(t *testing.T) {
			disk := faulty{}
			s, err := openOn(&disk, quick(t))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Create(good("web")); err != nil {
				t.Fatal(err)
			}
			disk.steps = nil
			if err := operations[name](s); err != nil {
				t.Fatal(err)
			}
			next := 0
			for _, step := range disk.steps {
				if next < len(want) && step == want[next] {
					next++
				}
			}
			if next < len(want) {
				t.Errorf("no %q in its place in %q", want[next], disk.steps)
			}
		})
	}
}

// snapshot is what a store holds, as text: records without their bulk.
func snapshot(s *Store) string {
	var b strings.Builder
	for _, r := range s.List() {
		tries := s.PINTries(r.Owner.UID, []byte(r.Name))
		fmt.Fprintf(&b, "%d/%s generation %d, %d certificates, %d PIN tries\n", r.Owner.UID, r.Name, r.Generation, len(r.Chain), tries)
	}
	for _, k := range []id{{1000, "web"}, {1000, "other"}, {1000, "new"}, {7, "new"}} {
		if r, ok := s.GetSealed(k.owner, k.name); ok {
			fmt.Fprintf(&b, "sealed %v generation %d, request %q\n", k, r.Generation, r.RequestID)
		}
	}
	fmt.Fprintf(&b, "uid 1000: %d PIN tries\n", len(s.ledger.PINTries[triesOfUID(1000)]))
	return b.String()
}

// TestFullDisk fills a real file system.
func TestFullDisk(t *testing.T) {
	mount := t.TempDir()
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=128k,mode=0700"); err != nil {
		t.Fatalf("mount a tmpfs (the test needs root): %v", err)
	}
	defer func() {
		if err := syscall.Unmount(mount, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	}()
	s := open(t, filepath.Join(mount, "state"))
	defer s.Close()
	n := 0
	for ; n < 100; n++ {
		if err := s.Create(good(fmt.Sprint("key", n))); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("Create on a full disk: %v, want ENOSPC", err)
			}
			break
		}
	}
	if n == 0 || n == 100 {
		t.Fatalf("%d keys fit into 128 KiB", n)
	}
	if len(s.List()) != n {
		t.Errorf("%d keys in memory, want the %d that were acknowledged", len(s.List()), n)
	}
	if err := s.SpendPINTry(1000, []byte("key0")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a PIN's try that cannot be counted: %v, want ENOSPC", err)
	}
	s = reopen(t, s)
	clean(t, s)
	if len(s.List()) != n {
		t.Errorf("%d keys after a restart, want %d", len(s.List()), n)
	}
	if err := errors.Join(s.Delete(1000, "key0"), s.Delete(1000, "key1"), s.Create(good("late"))); err != nil {
		t.Errorf("after room was made: %v", err)
	}
	if _, ok := s.Get(1000, "late"); !ok {
		t.Error("the late key is missing")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
