package grants

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// clock is a clock that the test moves.
type clock struct{ time time.Time }

func (c *clock) now() time.Time { return c.time }

func newGrants() (*Grants, *clock) {
	c := &clock{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	return New(c.now), c
}

var (
	alice = Key{1000, "alice"}
	bob   = Key{1001, "bob"}
	card  = Unit{"piv", "1"}
	other = Unit{"piv", "2"}
)

// unlock unlocks key for a minute.
func unlock(t *testing.T, g *Grants, key Key, unit Unit) time.Time {
	t.Helper()
	p := g.Begin(key, unit)
	defer p.End()
	until := g.now().Add(time.Minute)
	if !p.Unlock(until) {
		t.Fatalf("%v is not unlocked", key)
	}
	return until
}

// confirm confirms the operation op of key by the process 1.
func confirm(g *Grants, key Key, op string, until time.Time) Use {
	p := g.Begin(key, card)
	defer p.End()
	p.Confirm(op, "1", until)
	return Use{key, op, "1"}
}

func TestUnlockEnds(t *testing.T) {
	g, c := newGrants()
	if g.Open(alice) || g.UnlockedUntil(alice) != nil {
		t.Error("a key is unlocked that nobody unlocked")
	}
	until := unlock(t, g, alice, card)
	if got := g.UnlockedUntil(alice); got == nil || !got.Equal(until) {
		t.Errorf("unlocked until %v, want %v", got, until)
	}
	if !g.Open(alice) || g.Open(bob) {
		t.Error("the unlocked key alone is open")
	}
	c.time = until
	if g.Open(alice) || g.UnlockedUntil(alice) != nil || g.Lock(alice) {
		t.Error("the key is unlocked after its time")
	}
}

func TestConfirmationIsForOneUse(t *testing.T) {
	g, c := newGrants()
	u := confirm(g, alice, "sign", c.time.Add(time.Minute))
	for _, other := range []Use{{bob, "sign", "1"}, {alice, "request", "1"}, {alice, "sign", "2"}, {alice, "sign", ""}} {
		if g.Confirmed(other) {
			t.Errorf("%v is confirmed", other)
		}
	}
	if !g.Confirmed(u) || !g.Open(alice) {
		t.Error("the use is not confirmed")
	}
	c.time = c.time.Add(time.Minute)
	if g.Confirmed(u) || g.Open(alice) {
		t.Error("the use is confirmed after its time")
	}
}

func TestConfirmationUntilTheLock(t *testing.T) {
	g, c := newGrants()
	u := confirm(g, alice, "sign", time.Time{})
	c.time = c.time.Add(24 * time.Hour)
	if !g.Confirmed(u) {
		t.Error("the confirmation ended by itself")
	}
	if !g.Lock(alice) || g.Confirmed(u) || g.Lock(alice) {
		t.Error("a lock ends it once")
	}
}

// A lock cancels what is in progress for the key, and for no other key.
func TestLockCancelsWhatIsInProgress(t *testing.T) {
	g, c := newGrants()
	unlocking, confirming, others := g.Begin(alice, card), g.Begin(alice, card), g.Begin(bob, card)
	if !g.Open(alice) || !g.Lock(alice) {
		t.Error("a key with an unlock in progress is not open")
	}
	later := g.Begin(alice, card)
	if unlocking.Unlock(c.time.Add(time.Minute)) || g.UnlockedUntil(alice) != nil {
		t.Error("the unlock outlived the lock")
	}
	if confirming.Confirm("sign", "", time.Time{}); g.Confirmed(Use{alice, "sign", ""}) {
		t.Error("the confirmation outlived the lock")
	}
	if !others.Unlock(c.time.Add(time.Minute)) || !later.Unlock(c.time.Add(time.Minute)) {
		t.Error("the lock cancelled more than it should")
	}
	for _, p := range []*Pending{unlocking, confirming, others, later} {
		p.End()
	}
	g.Lock(alice)
	if g.Open(alice) || len(g.pending) != 0 {
		t.Error("what ended is still in progress")
	}
}

func TestLockUnit(t *testing.T) {
	g, c := newGrants()
	unlock(t, g, alice, card)
	unlock(t, g, bob, other)
	carol := Key{1002, "carol"}
	u := confirm(g, carol, "sign", time.Time{})
	here, there := g.Begin(Key{1003, "dave"}, card), g.Begin(Key{1004, "eve"}, other)
	locked := g.LockUnit(card)
	slices.SortFunc(locked, func(a, b Key) int { return int(a.Owner) - int(b.Owner) })
	if !slices.Equal(locked, []Key{alice, carol}) {
		t.Errorf("locked %v, want %v and %v", locked, alice, carol)
	}
	if g.UnlockedUntil(alice) != nil || g.Confirmed(u) || g.UnlockedUntil(bob) == nil {
		t.Error("the keys on the unit, and no others, should be locked")
	}
	if here.Unlock(c.time.Add(time.Minute)) || !there.Unlock(c.time.Add(time.Minute)) {
		t.Error("the unlocks in progress on the unit, and no others, should be cancelled")
	}
}

// Confirmations from before the end of one unlock do not count for the next, and
// those during it stay when it is made longer.
func TestNewUnlockWantsNewConfirmations(t *testing.T) {
	g, c := newGrants()
	unlock(t, g, alice, card)
	u := confirm(g, alice, "sign", time.Time{})
	until := unlock(t, g, alice, card)
	if !g.Confirmed(u) {
		t.Error("a second unlock ended the confirmation")
	}
	c.time = until
	unlock(t, g, alice, card)
	if g.Confirmed(u) {
		t.Error("the confirmation counts for the next unlock")
	}
}

func TestStale(t *testing.T) {
	g, c := newGrants()
	before := unlock(t, g, alice, card)
	if g.Stale(alice, nil) || g.Stale(bob, &before) {
		t.Error("a key that was not unlocked is stale")
	}
	c.time = c.time.Add(time.Second)
	now := unlock(t, g, alice, card)
	if g.Stale(alice, &before) || g.UnlockedUntil(alice) == nil {
		t.Error("a newer unlock is stale")
	}
	p := g.Begin(alice, card)
	if !g.Stale(alice, &now) || g.UnlockedUntil(alice) != nil {
		t.Error("the key is still unlocked")
	}
	if !p.Unlock(now) {
		t.Error("an unlock in progress was cancelled")
	}
}

func TestConfirmationsAreBounded(t *testing.T) {
	g, c := newGrants()
	p := g.Begin(alice, card)
	for i := range maxConfirmations {
		p.Confirm("sign", fmt.Sprint(i), c.time.Add(time.Minute))
	}
	p.Confirm("sign", "one more", c.time.Add(time.Hour))
	if n := len(g.confirmed); n != maxConfirmations || !g.Confirmed(Use{alice, "sign", "one more"}) {
		t.Errorf("%d confirmations are remembered, want %d and the last one among them", n, maxConfirmations)
	}
	c.time = c.time.Add(time.Minute)
	p.Confirm("sign", "after the others", time.Time{})
	if n := len(g.confirmed); n != 2 {
		t.Errorf("%d confirmations are remembered, want the 2 that hold", n)
	}
}

func TestGrantsAreSafeForConcurrentUse(t *testing.T) {
	g := New(time.Now)
	var all sync.WaitGroup
	for i := range 8 {
		key := Key{uint32(i % 2), "key"}
		all.Go(func() {
			for range 200 {
				p := g.Begin(key, card)
				until := time.Now().Add(time.Minute)
				p.Unlock(until)
				p.Confirm("sign", "", until)
				g.Confirmed(Use{key, "sign", ""})
				g.Stale(key, &until)
				p.End()
				g.Lock(key)
				g.LockUnit(card)
			}
		})
	}
	all.Wait()
	if g.Open(Key{0, "key"}) || g.Open(Key{1, "key"}) {
		t.Error("a key is open after its last lock")
	}
}
