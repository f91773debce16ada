package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/internal/fault"
)

// secret is a record with every member set.
func secret(name string) Sealed {
	return Sealed{
		Name:      name,
		Owner:     Owner{UID: 1000, User: "alice"},
		Created:   time.Date(2026, 3, 4, 5, 6, 7, 89, time.FixedZone("", 3600)),
		RequestID: "0123456789abcdef",
		Made:      Made{Device: "swtpm:/run/x/s", Maker: "IBM 1.2.3", Software: true},
		Backend:   "tpm",
		Device:    json.RawMessage(`{"key":"-----BEGIN <TSS2> & more","parent":{"name":"000b"}}`),
	}
}

// put stores one or ends the test.
func put(t testing.TB, s *Store, r Sealed) Sealed {
	t.Helper()
	if err := s.PutSealed(r, false); err != nil {
		t.Fatalf("PutSealed: %v", err)
	}
	got, ok := s.GetSealed(r.Owner.UID, r.Name)
	if !ok {
		t.Fatal("what was stored is not there")
	}
	return got
}

func TestLifeOfASealedSecret(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "a", "state"))
	if err := s.Create(good("web")); err != nil { // a key of the same name is another thing
		t.Fatal(err)
	}
	want := put(t, s, secret("web"))
	if want.Generation != 1 || string(want.Device) != string(secret("web").Device) {
		t.Errorf("stored %+v", want)
	}
	info, err := os.Stat(s.sealed.path(id{1000, "web"}))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the file: %v, %v, want mode 0600", info, err)
	}
	s = reopen(t, s)
	if got, ok := s.GetSealed(1000, "web"); !ok || got.Created != want.Created || !bytes.Equal(got.Device, want.Device) {
		t.Errorf("after a restart: %+v, %v", got, ok)
	}
	if _, ok := s.GetSealed(1001, "web"); ok {
		t.Error("another uid has it too")
	}
	again := secret("web")
	again.RequestID = "another"
	if err := s.PutSealed(again, false); fault.KindOf(err) != fault.BadRequest {
		t.Errorf("a taken name: got %v, want bad-request", err)
	}
	if err := s.PutSealed(again, true); err != nil {
		t.Errorf("replace: %v", err)
	}
	s = reopen(t, s)
	if got, _ := s.GetSealed(1000, "web"); got.Generation != 2 || got.RequestID != "another" {
		t.Errorf("after replacing: %+v", got)
	}
	clean(t, s)
	if err := s.DeleteSealed(1000, "web"); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := s.DeleteSealed(1000, "web"); fault.KindOf(err) != fault.Denied {
		t.Errorf("second delete: got %v, want denied", err)
	}
	s = reopen(t, s)
	if _, ok := s.GetSealed(1000, "web"); ok {
		t.Error("deleted, and there after a restart")
	}
	if _, ok := s.Get(1000, "web"); !ok {
		t.Error("the key of that name went with it")
	}
	clean(t, s)
}

func TestSealedIsBounded(t *testing.T) {
	s := open(t, quick(t))
	for n := range MaxSealed {
		put(t, s, secret(fmt.Sprint("s", n)))
	}
	if err := s.PutSealed(secret("more"), true); fault.KindOf(err) != fault.Denied {
		t.Errorf("one too many: got %v, want denied", err)
	}
	if err := s.PutSealed(secret("s0"), true); err != nil {
		t.Errorf("replacing one of them: %v", err)
	}
	other := secret("more")
	other.Owner.UID = 7
	put(t, s, other)
	if err := s.DeleteSealed(1000, "s1"); err != nil {
		t.Fatal(err)
	}
	put(t, s, secret("more"))
}

// TestSealedSetAside: files that are not exactly what the store wrote are not
// used, are shown, keep their name taken, and stay as they are.
func TestSealedSetAside(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, path string, data []byte){
		"damaged":  func(t *testing.T, path string, data []byte) { write(t, path, data[:len(data)-5]) },
		"of a key": func(t *testing.T, path string, _ []byte) { _, data := stored(t, "web"); write(t, path, data) },
		"another's": func(t *testing.T, path string, data []byte) {
			write(t, path, bytes.Replace(data, []byte("1000"), []byte("1001"), 1))
		},
		"another name's": func(t *testing.T, path string, data []byte) {
			write(t, path, bytes.Replace(data, []byte(`"web"`), []byte(`"wob"`), 1))
		},
		"older": func(t *testing.T, path string, data []byte) {
			write(t, path, bytes.Replace(data, []byte(`"generation": 2`), []byte(`"generation": 1`), 1))
		},
		"open to others": func(t *testing.T, path string, _ []byte) { chmod(t, path, 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, fresh(t))
			put(t, s, secret("web"))
			if err := s.PutSealed(secret("web"), true); err != nil {
				t.Fatal(err)
			}
			path := s.sealed.path(id{1000, "web"})
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			change(t, path, data)
			left, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s = reopen(t, s)
			if p := problem(t, s, path); p.Reason == "" {
				t.Errorf("got %+v, want a reason and no key", p)
			}
			if _, ok := s.GetSealed(1000, "web"); ok {
				t.Error("it is used")
			}
			if err := s.PutSealed(secret("web"), true); fault.KindOf(err) != fault.BadRequest {
				t.Errorf("its name: got %v, want it taken", err)
			}
			if err := s.DeleteSealed(1000, "web"); fault.KindOf(err) != fault.Denied {
				t.Errorf("delete: got %v, want denied", err)
			}
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, left) {
				t.Errorf("the file was touched: %v", err)
			}
		})
	}
}

// TestSealedChangedBehindTheStore: the store does not overwrite another program's change.
func TestSealedChangedBehindTheStore(t *testing.T) {
	s := open(t, fresh(t))
	put(t, s, secret("web"))
	path := s.sealed.path(id{1000, "web"})
	write(t, path, []byte("mine"))
	if err := s.PutSealed(secret("web"), true); err == nil {
		t.Error("it was replaced")
	}
	if err := s.DeleteSealed(1000, "web"); err == nil {
		t.Error("it was deleted")
	}
	if data, _ := os.ReadFile(path); string(data) != "mine" {
		t.Errorf("the file now holds %q", data)
	}
}

func TestSealedIsChecked(t *testing.T) {
	for name, change := range map[string]func(*Sealed){
		"name":         func(r *Sealed) { r.Name = "../web" },
		"backend":      func(r *Sealed) { r.Backend = "TPM" },
		"no device":    func(r *Sealed) { r.Device = nil },
		"null":         func(r *Sealed) { r.Device = json.RawMessage("null") },
		"twice":        func(r *Sealed) { r.Device = json.RawMessage(`{"a":1,"a":2}`) },
		"not JSON":     func(r *Sealed) { r.Device = json.RawMessage(`{`) },
		"no time":      func(r *Sealed) { r.Created = time.Time{} },
		"long request": func(r *Sealed) { r.RequestID = strings.Repeat("x", maxText+1) },
		"control":      func(r *Sealed) { r.Made.Maker = "a\x1b[2J" },
	} {
		s := open(t, quick(t))
		r := secret("web")
		change(&r)
		if err := s.PutSealed(r, false); fault.KindOf(err) != fault.BadRequest {
			t.Errorf("%s: got %v, want bad-request", name, err)
		}
		clean(t, s)
	}
}

// TestSealedMutants changes one byte at every place: nothing that is not canonical
// is used.
func TestSealedMutants(t *testing.T) {
	s := open(t, quick(t))
	put(t, s, secret("web"))
	data, err := os.ReadFile(s.sealed.path(id{1000, "web"}))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range data {
		for range 4 {
			mutant := bytes.Clone(data)
			mutant[i] ^= byte(1 + rng.IntN(255))
			if r, err := parseSealed(mutant); err == nil && !bytes.Equal(must(encode(r)), mutant) {
				t.Errorf("byte %d: used a record that is written otherwise", i)
			}
		}
	}
}

// FuzzSealed: what is used is written exactly as it was read.
func FuzzSealed(f *testing.F) {
	r := secret("web")
	r.Version, r.Generation = version, 1
	_, data, err := r.canonical()
	if err != nil {
		f.Fatalf("the seed: %v", err)
	}
	f.Add(data)
	f.Add(bytes.Replace(data, []byte(`"version": 1,`), []byte("\"version\": 1,\n  \"Version\": 1,"), 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseSealed(data)
		if err != nil {
			return
		}
		if again := must(encode(r)); !bytes.Equal(again, data) {
			t.Errorf("used a record that is written otherwise:\n%s\n%s", data, again)
		}
	})
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
