package piv_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv"
	"holdfast/piv/wire"
	"holdfast/test/pace"
	"holdfast/test/pivcard"
)

// impatient makes a hanging card known soon, and leaves a child time to start on a
// busy machine.
func impatient(c *piv.Config) {
	c.Limits(2*time.Second, 1500*time.Millisecond, 50*time.Millisecond)
}

// TestStartsNothing: an agent without a request about cards runs no child.
func TestStartsNothing(t *testing.T) {
	s := newScript(t)
	b := s.open(t)
	b.OnChange(func(string, bool) {})
	b.Lock(nil)
	if b.Unit(keys.Material{}) != "" || b.Name() != "piv" {
		t.Error("unit or name is wrong")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if n := s.starts(); n != 0 {
		t.Errorf("%d children were started, want none", n)
	}
	if err := b.Check(soon(t), keys.Material{}); fault.KindOf(err) != fault.BadRequest {
		t.Errorf("after close: got %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := piv.Open(piv.Config{Program: "holdfast-piv"}); fault.KindOf(err) != fault.BadRequest {
		t.Errorf("a program without a path: got %v, want bad-request", err)
	}
	b := openPIV(t, piv.Config{Program: t.TempDir() + "/missing"})
	_, err := b.Cards(soon(t))
	if e, _ := fault.AsError(err); e == nil || e.Kind != fault.DeviceAbsent || !strings.Contains(e.Hint, "holdfast-piv") {
		t.Errorf("a program that is missing: got %v, want device-absent that names it", err)
	}
}

// TestChildMisbehaves: whatever the child does instead of its work, the call ends
// with an error in time or with the answer of another child, and the next call
// works.
func TestChildMisbehaves(t *testing.T) {
	s := newScript(t)
	b := s.open(t, impatient)
	m := s.create(b, keys.OnCard{PINPolicy: keys.PolicyNever})
	for _, test := range []struct {
		fault string
		want  fault.Kind
	}{
		{"crash", ""}, {"noise", ""}, {"text", ""}, {"two", ""}, {"unknown", ""}, {"wrong-id", ""}, {"huge", ""}, {"half", ""}, {"close", ""},
		{"slow", ""}, {"chatter", ""},
		{"hang", fault.Deadline}, {"empty", fault.DeviceFailed}, {"twice", fault.DeviceFailed},
	} {
		s.order(wire.Sign, test.fault)
		begun := time.Now()
		if err := sign(soon(t), b, m); fault.KindOf(err) != test.want {
			t.Errorf("%s: got %v, want %q", test.fault, err, test.want)
		}
		if took := time.Since(begun); pace.Over(t, took, 4*time.Second) {
			t.Errorf("%s: took %v", test.fault, took)
		}
		if got := b.Status(soon(t)).State; (got == keys.StateWedged) != (test.want == fault.Deadline) {
			t.Errorf("after %s: state %s", test.fault, got)
		}
		if err := sign(soon(t), b, m); err != nil {
			t.Errorf("after %s: %v", test.fault, err)
		}
		if got := b.Status(soon(t)).State; got != keys.StateReady {
			t.Errorf("after %s and a signature: state %s", test.fault, got)
		}
	}
}

// TestChildCrashesWithPIN: the PIN is gone with the child, and the key says that
// it is locked.
func TestChildCrashesWithPIN(t *testing.T) {
	s := newScript(t)
	b := s.open(t, impatient)
	m := s.create(b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	for _, flaw := range []string{"crash", "noise", "hang"} {
		unlock(t, b, m)
		s.order(wire.Sign, flaw)
		want := fault.PINRequired
		if flaw == "hang" {
			want = fault.Deadline
		}
		if err := sign(soon(t), b, m); fault.KindOf(err) != want {
			t.Errorf("%s: got %v, want %s", flaw, err, want)
		}
		starts := s.starts()
		if err := sign(soon(t), b, m); fault.KindOf(err) != fault.PINRequired {
			t.Errorf("after %s: got %v, want pin-required", flaw, err)
		}
		if s.starts() != starts {
			t.Errorf("after %s: a locked key has reached a child", flaw)
		}
	}
	sent := s.card().Sent
	s.order(wire.Unlock, "crash")
	if err := b.Unlock(soon(t), m, []byte(rightPIN), time.Now().Add(time.Hour)); fault.KindOf(err) != fault.DeviceFailed {
		t.Errorf("a crash while unlocking: got %v, want device-failed", err)
	}
	if got := s.card().Sent; got != sent {
		t.Errorf("the PIN was sent again by itself: %d times", got-sent)
	}
}

// TestCrashLoop: a child that cannot live is not started all the time.
func TestCrashLoop(t *testing.T) {
	s := newScript(t)
	b := s.open(t)
	m := s.create(b, keys.OnCard{})
	before := s.starts()
	s.order(wire.Sign, "crash-always")
	for begun := time.Now(); time.Since(begun) < 1200*time.Millisecond || s.starts()-before < 2; {
		if err := sign(soon(t), b, m); fault.KindOf(err) != fault.DeviceFailed {
			t.Fatalf("got %v, want device-failed", err)
		}
	}
	if n := s.starts() - before; n > 10 {
		t.Errorf("%d children in 1.2 s, want a few", n)
	}
	os.Remove(s.path + ".order")
	begun := time.Now()
	if err := sign(soon(t), b, m); err != nil || pace.Over(t, time.Since(begun), 1500*time.Millisecond) {
		t.Errorf("when it works again: %v after %v, want success within the pause", err, time.Since(begun))
	}
}

// TestCallerLeaves: a call ends with its context, what is under way is finished if
// that is soon, and the next caller does not wait for long.
func TestCallerLeaves(t *testing.T) {
	s := newScript(t)
	b := s.open(t, func(c *piv.Config) { c.Limits(5*time.Second, time.Second, time.Second) })
	m := s.create(b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	unlock(t, b, m)
	s.order(wire.Sign, "slow")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if err := sign(ctx, b, m); fault.KindOf(err) != fault.Deadline || pace.Over(t, time.Since(begun), 200*time.Millisecond) {
		t.Errorf("got %v after %v, want deadline at once", err, time.Since(begun))
	}
	if err := sign(soon(t), b, m); err != nil {
		t.Errorf("the child was not given time to finish: %v", err)
	}
}

// TestTouchAbandoned: the wait for a touch goes on when the caller has left, which
// the next one is told, and costs no key of the card its PIN.
func TestTouchAbandoned(t *testing.T) {
	_, b, cards := start(t, 1)
	m := create(t, b, keys.OnCard{TouchPolicy: keys.PolicyAlways, PINPolicy: keys.PolicyOnce})
	other := create(t, b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	unlock(t, b, m)
	unlock(t, b, other)
	before := b.Workers()
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- sign(ctx, b, m) }()
	<-cards[0].Blinks()
	queued := make(chan error, 1)
	go func() { queued <- sign(soon(t), b, other) }() // asked before it is given up: that waits
	cancel()
	begun := time.Now()
	wantError(t, "the caller who left", <-left, fault.TouchTimeout)
	err := b.Check(soon(t), other)
	if took := time.Since(begun); pace.Over(t, took, 200*time.Millisecond) {
		t.Errorf("it took %v to say so", took)
	}
	wantError(t, "the next", err, fault.Busy, "card 1 still waits for the touch", "touch it")
	if e, _ := fault.AsError(err); e.RetryAfter <= 0 || e.RetryAfter > keys.MaxTouch+time.Second {
		t.Errorf("try again after %v", e.RetryAfter)
	}
	if s := b.Status(soon(t)); s.State != keys.StateReady {
		t.Errorf("state %s, want ready", s.State)
	}
	if err := <-queued; err != nil && fault.KindOf(err) != fault.Busy {
		t.Errorf("in the queue: %v", err)
	}
	within(t, "the card gives up", recovery, func() error { return b.Check(soon(t), other) })
	if err := sign(soon(t), b, other); err != nil {
		t.Errorf("the other key: %v", err)
	}
	if after := b.Workers(); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("children %v, then %v", before, after)
	}
}

// TestCutOffWhileGenerating: whether the card has made the key is unknown.
func TestCutOffWhileGenerating(t *testing.T) {
	s := newScript(t)
	b := s.open(t)
	s.order(wire.Generate, "crash")
	_, err := b.Create(soon(t), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, Card: keys.OnCard{Slot: "90", AllowUnattested: true}})
	wantError(t, "create", err, fault.DeviceFailed, "a new key may be in slot 90 of card 7", "holdfast key adopt NAME --slot 90")
}

// TestTouchHangs: a card that does not even give up its wait loses its child.
func TestTouchHangs(t *testing.T) {
	s := newScript(t)
	b := s.open(t, func(c *piv.Config) { c.Finger(100 * time.Millisecond) })
	m := s.create(b, keys.OnCard{TouchPolicy: keys.PolicyAlways})
	s.order(wire.Sign, "hang")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantError(t, "nobody touches it", sign(ctx, b, m), fault.TouchTimeout)
	wantError(t, "meanwhile", sign(soon(t), b, m), fault.Busy, "abandoned")
	within(t, "the next", time.Second, func() error { return sign(soon(t), b, m) })
	if got := b.Status(soon(t)); got.State != keys.StateReady {
		t.Errorf("state %s: it has signed since", got.State)
	}
}

// TestLockWhileBusy: Lock does not wait for the card, and what was unlocked is
// locked when it returns, however the child takes it.
func TestLockWhileBusy(t *testing.T) {
	s := newScript(t)
	b := s.open(t)
	m := s.create(b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	for _, flaw := range []string{"", "hang", "crash"} {
		unlock(t, b, m)
		before := b.Workers()
		s.order(wire.Sign, "slow")
		var busy sync.WaitGroup
		busy.Go(func() { _ = sign(soon(t), b, m) }) // may succeed, or be cut off
		waitUntil(t, func() bool { _, err := os.Stat(s.path + ".order"); return err != nil })
		if flaw != "" {
			s.order(wire.Lock, flaw)
		}
		begun := time.Now()
		b.Lock(&m)
		if took := time.Since(begun); pace.Over(t, took, 900*time.Millisecond) {
			t.Errorf("%q: Lock took %v", flaw, took)
		}
		if err := sign(soon(t), b, m); fault.KindOf(err) != fault.PINRequired {
			t.Errorf("%q: got %v, want pin-required", flaw, err)
		}
		busy.Wait()
		if took := time.Since(begun); pace.Over(t, took, 2*time.Second) {
			t.Errorf("%q: the signature went on for %v", flaw, took)
		}
		if same := fmt.Sprint(before) == fmt.Sprint(b.Workers()); same != (flaw == "") {
			t.Errorf("%q: the child is the same: %v", flaw, same)
		}
	}
}

// TestLockRaces: whatever Lock and Unlock do to each other, a key is locked when a
// Lock is the last to begin and end.
func TestLockRaces(t *testing.T) {
	s := newScript(t)
	b := s.open(t)
	m := s.create(b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	for i := range 300 {
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { _ = b.Unlock(soon(t), m, []byte(rightPIN), time.Now().Add(time.Hour)) }) // may lose
		}
		all.Go(func() {
			if i%2 == 0 {
				b.Lock(nil)
			} else {
				b.Lock(&m)
			}
		})
		all.Wait()
		b.Lock(&m)
		if err := sign(soon(t), b, m); fault.KindOf(err) != fault.PINRequired {
			t.Fatalf("round %d: got %v, want pin-required", i, err)
		}
	}
	if c := s.card(); c.Wrong != 0 {
		t.Errorf("%d wrong PINs", c.Wrong)
	}
}

// TestUnlockOvertaken: a key that was locked while it was being unlocked is
// locked.
func TestUnlockOvertaken(t *testing.T) {
	s := newScript(t)
	b := s.open(t)
	m := s.create(b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	s.order(wire.Unlock, "slow")
	unlocked := make(chan error, 1)
	go func() { unlocked <- b.Unlock(soon(t), m, []byte(rightPIN), time.Now().Add(time.Hour)) }()
	waitUntil(t, func() bool { _, err := os.Stat(s.path + ".order"); return err != nil })
	b.Lock(nil)
	wantError(t, "unlock", <-unlocked, fault.Busy, "was locked while", "unlock it again")
	if err := sign(soon(t), b, m); fault.KindOf(err) != fault.PINRequired {
		t.Errorf("sign: got %v, want pin-required", err)
	}
}

// TestUnlockPassed: a lock of one key does not cancel the unlock of another, and
// a card whose key was locked meanwhile is not busy.
func TestUnlockPassed(t *testing.T) {
	_, b, cards := start(t, 1)
	one, other := create(t, b, keys.OnCard{PINPolicy: keys.PolicyOnce}), create(t, b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	for _, test := range []struct {
		locked *keys.Material
		want   fault.Kind
	}{{&other, ""}, {&one, fault.Busy}, {nil, fault.Busy}} {
		b.Lock(nil)
		waitUntil(t, func() bool { return !cards[0].Verified() })
		cards[0].Forget()
		cards[0].Order(pivcard.Slow(300 * time.Millisecond).At(pivcard.Verify))
		unlocked := make(chan error, 1)
		go func() { unlocked <- b.Unlock(soon(t), one, []byte(rightPIN), time.Now().Add(time.Hour)) }()
		waitUntil(t, func() bool { return cards[0].Count(pivcard.Verify) > 0 })
		b.Lock(test.locked)
		err := <-unlocked
		wantError(t, "unlock", err, test.want)
		signed := fault.Kind("")
		if err != nil {
			signed = fault.PINRequired
		}
		wantError(t, "sign", sign(soon(t), b, one), signed)
		if s := b.Status(soon(t)); s.State != keys.StateReady {
			t.Errorf("state %s, want ready", s.State)
		}
		cards[0].Mend()
	}
}

// TestRemoval: what was unlocked is locked when the card goes, whoever watches
// hears of it, and a new card is found.
func TestRemoval(t *testing.T) {
	s := newScript(t)
	b := s.open(t)
	m := s.create(b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	heard := make(chan string, 10)
	b.OnChange(func(unit string, gone bool) { heard <- fmt.Sprint(unit, gone) })
	unlock(t, b, m)
	s.change(func(c *scriptCard) { c.Gone, c.Came = true, c.Came+1 })
	if got := <-heard; got != "7true" {
		t.Errorf("heard %q, want that card 7 is gone", got)
	}
	if err := sign(soon(t), b, m); fault.KindOf(err) != fault.DeviceAbsent {
		t.Errorf("without the card: got %v, want device-absent", err)
	}
	s.change(func(c *scriptCard) { c.Gone, c.Came = false, c.Came+1 })
	if got := <-heard; got != "7false" {
		t.Errorf("heard %q, want that card 7 came", got)
	}
	if err := sign(soon(t), b, m); fault.KindOf(err) != fault.PINRequired {
		t.Errorf("the card again: got %v, want pin-required", err)
	}
	unlock(t, b, m)
	s.change(func(c *scriptCard) { c.Came += 2 }) // out and in, faster than anybody looked
	if got := <-heard + <-heard; got != "7true7false" {
		t.Errorf("heard %q, want that it went and came", got)
	}
	if err := sign(soon(t), b, m); fault.KindOf(err) != fault.PINRequired {
		t.Errorf("exchanged: got %v, want pin-required", err)
	}
}

// TestHangsAtIdentify: a card that does not say who it is is set aside, and asked
// again.
func TestHangsAtIdentify(t *testing.T) {
	s := newScript(t)
	s.order(wire.Identify, "hang")
	b := s.open(t, impatient, func(c *piv.Config) { c.Limits(2*time.Second, 200*time.Millisecond, 50*time.Millisecond) })
	ctx := soon(t)
	list, err := b.Cards(ctx)
	if err != nil || len(list) != 1 || list[0].State != keys.StateWedged || list[0].Serial != 0 {
		t.Errorf("got %+v, %v, want one card that does not answer", list, err)
	}
	if got := b.Status(ctx); got.State != keys.StateWedged || len(got.Units) != 1 {
		t.Errorf("status: got %+v, want wedged", got)
	}
	heard := make(chan string, 1)
	b.OnChange(func(unit string, _ bool) {
		select {
		case heard <- unit:
		default:
		}
	})
	select {
	case <-heard:
	case <-ctx.Done():
		t.Fatal("the card was not asked again")
	}
	waitUntil(t, func() bool { return b.Status(ctx).State == keys.StateReady })
}

// TestScannerCrashes: the watch goes on, and no card is taken for gone.
func TestScannerCrashes(t *testing.T) {
	s := newScript(t)
	b := s.open(t)
	m := s.create(b, keys.OnCard{PINPolicy: keys.PolicyOnce})
	unlock(t, b, m)
	waitUntil(t, func() bool { return s.watches() > 0 })
	changes := atomic.Int32{}
	b.OnChange(func(string, bool) { changes.Add(1) })
	for _, flaw := range []string{"crash", "noise", "wrong-id"} {
		before, watches := s.starts(), s.watches()
		s.order(wire.Readers, flaw)
		s.kill(b.Workers()[0]) // so that it asks anew
		waitUntil(t, func() bool { return s.starts() >= before+2 && s.watches() > watches })
		if err := sign(soon(t), b, m); err != nil {
			t.Errorf("%s: %v", flaw, err)
		}
	}
	if changes.Load() != 0 {
		t.Errorf("%d changes were told of, want none", changes.Load())
	}
}

func (s *script) kill(pid int) {
	s.t.Helper()
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// waitUntil returns when ready says so.
func waitUntil(t testing.TB, ready func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); !ready(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("waited in vain")
		}
	}
}

// TestLogIsBounded: what a child complains about does not fill the log.
func TestLogIsBounded(t *testing.T) {
	s := newScript(t)
	var log lockedBuilder
	b := s.open(t, func(c *piv.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	m := s.create(b, keys.OnCard{})
	for _, flaw := range []string{"chatter", "chatter in lines"} {
		s.order(wire.Sign, flaw)
		if err := sign(soon(t), b, m); err != nil {
			t.Error(err)
		}
	}
	b.Close()
	text := log.String()
	if lines := strings.Count(text, "a long complaint "); lines < 2 || lines > 300 || len(text) > 1<<16 {
		t.Errorf("the log has %d bytes and %d complaints", len(text), lines)
	}
}

type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuilder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestNoLeaks: neither descriptors nor processes stay when a backend is closed,
// whatever happened to its children.
func TestNoLeaks(t *testing.T) {
	s := newScript(t)
	before := descriptors(t)
	for range 3 {
		b := s.open(t, impatient)
		m := s.create(b, keys.OnCard{Slot: "9a", Overwrite: true})
		for _, flaw := range []string{"crash", "hang", "noise", "close"} {
			s.order(wire.Sign, flaw)
			_ = sign(soon(t), b, m) // what becomes of it is another test's
		}
		pids := b.Workers()
		b.Close()
		for _, pid := range pids {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
				t.Errorf("child %d is still there", pid)
			}
		}
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, before %d", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
