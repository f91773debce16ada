package store

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/agent/keys"
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

// wantTries fails unless the next try is allowed (blocked is 0) or blocked for
// that long.
func wantTries(t *testing.T, s *Store, what string, blocked time.Duration) {
	t.Helper()
	err := s.SpendPINTry(1000, "web")
	if blocked == 0 {
		if err != nil {
			t.Errorf("%s: %v, want a try", what, err)
		}
		return
	}
	if e, ok := keys.AsError(err); !ok || e.Kind != keys.PINBlocked || e.RetryAfter != blocked {
		t.Errorf("%s: %#v, want pin-blocked for %v", what, err, blocked)
	}
}

func TestPINTries(t *testing.T) {
	s, clock := stocked(t)
	wantTries(t, s, "first", 0)
	*clock = clock.Add(10 * time.Minute)
	wantTries(t, s, "second", 0)
	wantTries(t, s, "third", 50*time.Minute)
	*clock = clock.Add(20 * time.Minute)
	wantTries(t, s, "later", 30*time.Minute)
	if got := s.PINTries(1000, "web"); got != 2 {
		t.Errorf("%d tries, want 2: a refused one does not count", got)
	}
	*clock = clock.Add(30 * time.Minute)
	wantTries(t, s, "when the first is an hour old", 0)
	wantTries(t, s, "and again", 10*time.Minute)
}

func TestPINTriesOutliveARestart(t *testing.T) {
	s, clock := stocked(t)
	wantTries(t, s, "first", 0)
	wantTries(t, s, "second", 0)
	s = reopen(t, s)
	s.now = func() time.Time { return *clock }
	wantTries(t, s, "after a restart", time.Hour)
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	wantTries(t, s, "after a reload", time.Hour)
}

func TestPINTriesAndTheClock(t *testing.T) {
	s, clock := stocked(t)
	wantTries(t, s, "first", 0)
	wantTries(t, s, "second", 0)
	*clock = clock.AddDate(-1, 0, 0)
	wantTries(t, s, "a year back", time.Hour)
	*clock = clock.Add(59 * time.Minute)
	wantTries(t, s, "59 minutes after that", time.Minute)
	*clock = clock.Add(time.Minute)
	wantTries(t, s, "an hour after that", 0)
}

func TestPINTriesGivenBack(t *testing.T) {
	s, _ := stocked(t)
	wantTries(t, s, "first", 0)
	wantTries(t, s, "second", 0)
	if err := s.ReturnPINTry(1000, "web"); err != nil {
		t.Fatal(err)
	}
	wantTries(t, s, "after one was returned", 0)
	wantTries(t, s, "and again", time.Hour)
	if err := s.ClearPINTries(1000, "web"); err != nil {
		t.Fatal(err)
	}
	if got := reopen(t, s).PINTries(1000, "web"); got != 0 {
		t.Errorf("%d tries after a restart, want 0", got)
	}
}

func TestPINTriesBelongToAKey(t *testing.T) {
	s, _ := stocked(t)
	if err := s.Create(good("other")); err != nil {
		t.Fatal(err)
	}
	wantTries(t, s, "first", 0)
	wantTries(t, s, "second", 0)
	if err := s.SpendPINTry(1000, "other"); err != nil {
		t.Errorf("the other key: %v", err)
	}
	if err := s.SpendPINTry(1001, "web"); keys.KindOf(err) != keys.Denied {
		t.Errorf("a key that is not there: %v, want denied", err)
	}
	if err := errors.Join(s.ReturnPINTry(1001, "web"), s.ClearPINTries(1001, "web")); err != nil {
		t.Errorf("giving back what was never spent: %v", err)
	}
	if err := errors.Join(s.Delete(1000, "web"), s.Create(good("web"))); err != nil {
		t.Fatal(err)
	}
	wantTries(t, s, "a new key of that name", 0)
}

func TestPINTriesAtOnce(t *testing.T) {
	s, _ := stocked(t)
	var all sync.WaitGroup
	allowed := make(chan struct{}, 20)
	for range 20 {
		all.Go(func() {
			if s.SpendPINTry(1000, "web") == nil {
				allowed <- struct{}{}
			}
		})
	}
	all.Wait()
	if len(allowed) != MaxPINTries {
		t.Errorf("%d tries at once were allowed, want %d", len(allowed), MaxPINTries)
	}
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
			if err := s.SpendPINTry(1000, "web"); err == nil {
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
			if err := errors.Join(os.Remove(s.ledgerPath()), s.Reload(), s.SpendPINTry(1000, "web")); err != nil {
				t.Errorf("after it was moved away: %v", err)
			}
		})
	}
}

func TestOlderGenerationIsSetAside(t *testing.T) {
	s, _ := stocked(t)
	path := s.path(id{1000, "web"})
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

// TestGenerationsGoOnAfterALostLedgerWrite: a ledger that still knows a deleted
// key must not make a new one of that name look old.
func TestGenerationsGoOnAfterALostLedgerWrite(t *testing.T) {
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

func FuzzLedger(f *testing.F) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	seeds := [][]byte{
		must(encode(ledger{Version: 1, Generations: map[string]uint64{"1000/web": 3}, PINTries: map[string][]time.Time{"1000/web": {now, now}}})),
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
