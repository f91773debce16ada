package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"holdfast/internal/fault"
)

// wantTries fails unless the next try is allowed (blocked is 0) or blocked for
// that long.
func wantTries(t *testing.T, s *Store, what string, blocked time.Duration) {
	t.Helper()
	err := s.SpendPINTry(1000, []byte("web"))
	if blocked == 0 {
		if err != nil {
			t.Errorf("%s: %v, want a try", what, err)
		}
		return
	}
	if e, ok := fault.AsError(err); !ok || e.Kind != fault.PINBlocked || e.RetryAfter != blocked {
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
	if got := s.PINTries(1000, []byte("web")); got != 2 {
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
	if err := s.ReturnPINTry(1000, []byte("web")); err != nil {
		t.Fatal(err)
	}
	wantTries(t, s, "after one was returned", 0)
	wantTries(t, s, "and again", time.Hour)
	if err := s.ClearPINTries(1000, []byte("web")); err != nil {
		t.Fatal(err)
	}
	if got := reopen(t, s).PINTries(1000, []byte("web")); got != 0 {
		t.Errorf("%d tries after a restart, want 0", got)
	}
}

func TestPINTriesBelongToAUIDAndAKey(t *testing.T) {
	s, _ := stocked(t)
	wantTries(t, s, "first", 0)
	wantTries(t, s, "second", 0)
	if err := s.SpendPINTry(1000, []byte("other")); err != nil {
		t.Errorf("the other key: %v", err)
	}
	if err := s.SpendPINTry(1001, []byte("web")); err != nil {
		t.Errorf("the other uid: %v", err)
	}
	if err := errors.Join(s.ReturnPINTry(1002, []byte("web")), s.ClearPINTries(1002, []byte("web"))); err != nil {
		t.Errorf("giving back what was never spent: %v", err)
	}
	wantTries(t, s, "third", time.Hour)
}

// TestPINTriesOutliveTheKey: deleting a key and adopting it again, under any
// name, gives no fresh tries.
func TestPINTriesOutliveTheKey(t *testing.T) {
	s, clock := stocked(t)
	wantTries(t, s, "first", 0)
	wantTries(t, s, "second", 0)
	if err := errors.Join(s.Delete(1000, "web"), s.Create(good("again"))); err != nil {
		t.Fatal(err)
	}
	wantTries(t, s, "deleted and adopted", time.Hour)
	s = reopen(t, s)
	s.now = func() time.Time { return *clock }
	wantTries(t, s, "and after a restart", time.Hour)
	*clock = clock.Add(PINWindow)
	wantTries(t, s, "an hour later", 0)
}

// wantWrong fails unless uid 1000 gets so many wrong PINs, each on a new key.
func wantWrong(t *testing.T, s *Store, what string, want int) {
	t.Helper()
	for n := 0; ; n++ {
		err := s.SpendPINTry(1000, fmt.Append(nil, what, n))
		if err == nil && n < want {
			continue
		}
		if e, ok := fault.AsError(err); !ok || e.Kind != fault.PINBlocked || e.RetryAfter != PINWindow || n != want {
			t.Errorf("%s: %d wrong PINs and then %#v, want %d and pin-blocked for an hour", what, n, err, want)
		}
		return
	}
}

func TestPINTriesOfOneUID(t *testing.T) {
	s, clock := stocked(t)
	wantWrong(t, s, "all at once", MaxPINTriesPerUID)
	if err := s.SpendPINTry(1001, []byte("web")); err != nil {
		t.Errorf("another uid: %v", err)
	}
	s = reopen(t, s)
	s.now = func() time.Time { return *clock }
	wantWrong(t, s, "after a restart", 0)
	*clock = clock.Add(PINWindow)
	wantWrong(t, s, "an hour later", MaxPINTriesPerUID)
}

// TestRightPINs cost nothing, and pay for no wrong ones either.
func TestRightPINs(t *testing.T) {
	s, _ := stocked(t)
	for n := range 20 {
		wantTries(t, s, fmt.Sprint("right ", n), 0)
		if err := s.ClearPINTries(1000, []byte("web")); err != nil {
			t.Fatal(err)
		}
	}
	for n := range MaxPINTriesPerUID - 1 {
		wantTries(t, s, fmt.Sprint("wrong ", n), 0)
		wantTries(t, s, fmt.Sprint("right after it ", n), 0)
		if err := errors.Join(s.ClearPINTries(1000, []byte("web")), s.ClearPINTries(1000, []byte("web"))); err != nil {
			t.Fatal(err)
		}
	}
	wantWrong(t, s, "after four wrong ones", 1)
}

func TestPINTriesAtOnce(t *testing.T) {
	s, _ := stocked(t)
	var all sync.WaitGroup
	allowed := make(chan struct{}, 20)
	for range 20 {
		all.Go(func() {
			if s.SpendPINTry(1000, []byte("web")) == nil {
				allowed <- struct{}{}
			}
		})
	}
	all.Wait()
	if len(allowed) != MaxPINTries {
		t.Errorf("%d tries at once were allowed, want %d", len(allowed), MaxPINTries)
	}
}

// PINTriesLeft agrees with SpendPINTry, on one key and on all of a uid's keys.
func TestPINTriesLeft(t *testing.T) {
	s, clock := stocked(t)
	left := func(key string, want int) {
		t.Helper()
		if got := s.PINTriesLeft(1000, []byte(key)); got != want {
			t.Errorf("%s has %d tries left, want %d", key, got, want)
		}
	}
	left("web", MaxPINTries)
	wantTries(t, s, "first", 0)
	left("web", MaxPINTries-1)
	wantTries(t, s, "second", 0)
	left("web", 0)
	left("other", MaxPINTries)
	for _, key := range []string{"a", "b"} {
		if err := s.SpendPINTry(1000, []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	left("other", MaxPINTriesPerUID-4)
	*clock = clock.Add(PINWindow)
	left("web", MaxPINTries)
}

// PINTries returns how many of owner's tries of one PIN count now.
func (s *Store) PINTries(owner uint32, what []byte) int {
	s.writing.Lock()
	defer s.writing.Unlock()
	return len(recent(s.ledger.PINTries[triesOf(owner, what)], s.now()))
}
