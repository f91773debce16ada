package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// stocked returns a store with the key web and a clock that the test moves.
func stocked(t *testing.T) (s *Store, clock *time.Time) {
	t.Helper()
	s = open(t, fresh(t))
	now := time.Now()
	s.now = func() time.Time { return now }
	if err := s.Create(good("web")); err != nil {
		t.Fatal(err)
	}
	return s, &now
}

// TestDamagedLedger refuses PINs, keeps everything else going and leaves the
// file alone.
func TestDamagedLedger(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"empty": func([]byte) []byte { return nil },
		"cut":   func(b []byte) []byte { return b[:len(b)/2] },
		"no tries": func([]byte) []byte {
			return []byte("{\n  \"version\": 1,\n  \"generations\": {},\n  \"pinTries\": null\n}\n")
		},
		"version": func(b []byte) []byte { return bytes.Replace(b, []byte(`"version": 1`), []byte(`"version": 2`), 1) },
		"duplicates": func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"1000/web": 1`), []byte(`"1000/web": 1, "1000/web": 1`), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := stocked(t)
			data, err := os.ReadFile(s.ledgerPath())
			if err != nil {
				t.Fatal(err)
			}
			damaged := change(data)
			if err := os.WriteFile(s.ledgerPath(), damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			s = reopen(t, s)
			problem(t, s, s.ledgerPath())
			if err := s.SpendPINTry(1000, []byte("web")); err == nil {
				t.Error("a PIN's try was allowed")
			}
			r, ok := s.Get(1000, "web")
			if !ok {
				t.Fatal("the key is gone")
			}
			if err := errors.Join(s.Replace(r), s.Create(good("more")), s.Delete(1000, "more")); err != nil {
				t.Errorf("changes: %v", err)
			}
			if now, err := os.ReadFile(s.ledgerPath()); err != nil || !bytes.Equal(now, damaged) {
				t.Errorf("the file was written over (%v)", err)
			}
			if err := errors.Join(os.Remove(s.ledgerPath()), s.Reload(), s.SpendPINTry(1000, []byte("web"))); err != nil {
				t.Errorf("after it was moved away: %v", err)
			}
		})
	}
}

func TestOlderGenerationIsSetAside(t *testing.T) {
	s, _ := stocked(t)
	path := s.keys.path(id{1000, "web"})
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, _ := s.Get(1000, "web")
	r.Chain = nil
	if err := errors.Join(s.Replace(r), os.WriteFile(path, old, 0o600)); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s)
	if p := problem(t, s, path); !strings.Contains(p.Reason, "generation 1, and generation 2 was written") || names(s) != "" {
		t.Errorf("problem %+v, keys %q", p, names(s))
	}
	if err := errors.Join(os.Remove(s.ledgerPath()), s.Reload()); err != nil {
		t.Fatal(err)
	}
	if names(s) != "web" {
		t.Errorf("without the ledger, on purpose: keys %q, want web", names(s))
	}
}

// TestGenerationsContinueAfterALostLedgerWrite: a ledger that still knows a deleted
// key must not make a new one of that name look old.
func TestGenerationsContinueAfterALostLedgerWrite(t *testing.T) {
	s, _ := stocked(t)
	r, _ := s.Get(1000, "web")
	if err := s.Replace(r); err != nil {
		t.Fatal(err)
	}
	ledger, err := os.ReadFile(s.ledgerPath())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Delete(1000, "web"), os.WriteFile(s.ledgerPath(), ledger, 0o600), s.Reload(), s.Create(good("web"))); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s)
	clean(t, s)
	if r, ok := s.Get(1000, "web"); !ok || r.Generation != 3 {
		t.Errorf("generation %d (%v), want 3", r.Generation, ok)
	}
}

// TestLedgerIsNotWrittenTooLarge: what no restart could read is not written.
func TestLedgerIsNotWrittenTooLarge(t *testing.T) {
	s, clock := stocked(t)
	before, err := os.ReadFile(s.ledgerPath())
	if err != nil {
		t.Fatal(err)
	}
	for n := range maxLedger / 20 {
		s.ledger.Generations[fmt.Sprintf("1000/key%09d", n)] = 1
	}
	if err := s.SpendPINTry(1000, []byte("web")); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a PIN's try: %v, want it refused", err)
	}
	if got := s.PINTries(1000, []byte("web")); got != 0 {
		t.Errorf("%d tries, want 0: the refused one does not count", got)
	}
	if after, err := os.ReadFile(s.ledgerPath()); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file was changed (%v)", err)
	}
	s = reopen(t, s)
	s.now = func() time.Time { return *clock }
	clean(t, s)
	wantTries(t, s, "after a restart", 0)
}

// TestOldTriesLeaveTheLedger, also those of keys that are not tried again.
func TestOldTriesLeaveTheLedger(t *testing.T) {
	s, clock := stocked(t)
	if err := errors.Join(s.SpendPINTry(1000, []byte("web")), s.SpendPINTry(1001, []byte("web"))); err != nil {
		t.Fatal(err)
	}
	*clock = clock.Add(PINWindow / 2)
	if err := s.SpendPINTry(1002, []byte("web")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{6, 2, 0} { // each try counts for a key and for a uid
		if err := s.Create(good(fmt.Sprint("key", want))); err != nil {
			t.Fatal(err)
		}
		if l, err := s.readLedger(); err != nil || len(l.PINTries) != want {
			t.Errorf("tries %v, %v, want %d", l.PINTries, err, want)
		}
		*clock = clock.Add(PINWindow / 2)
	}
}

func FuzzLedger(f *testing.F) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	seeds := [][]byte{
		must(encode(ledger{Version: 1, Generations: map[string]uint64{"1000/web": 3}, PINTries: map[string][]time.Time{triesOf(1000, nil): {now, now}, triesOfUID(1000): {now, now}}})),
		must(encode(ledger{Version: 1, Generations: map[string]uint64{}, PINTries: map[string][]time.Time{}})),
		nil,
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if l, err := parseLedger(data); err == nil && !bytes.Equal(must(encode(l)), data) {
			t.Errorf("used a ledger that is written otherwise: %s", data)
		}
	})
}
