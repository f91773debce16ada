package vault

import (
	"bytes"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"
)

var (
	a = KeyOf("9a", []byte("public a"))
	b = KeyOf("82", []byte("public b"))
)

// clock is a time that stands still until it is told.
type clock struct {
	sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.Lock()
	defer c.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.Lock()
	defer c.Unlock()
	c.at = c.at.Add(d)
}

func fixed(t *testing.T) (*Vault, *clock) {
	t.Helper()
	v, err := New()
	if err != nil {
		t.Fatal(err)
	}
	c := &clock{at: time.Now()}
	v.now = c.now
	return v, c
}

func (v *Vault) keep(t *testing.T, k Key, pin string, d time.Duration) {
	t.Helper()
	if !v.Keep(k, []byte(pin), v.now().Add(d), v.Epoch(k.slot)) {
		t.Fatal("it was not kept")
	}
}

// empty expects nothing of a PIN to be left in the page.
func empty(t *testing.T, v *Vault) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	if !bytes.Equal(v.page, make([]byte, len(v.page))) || v.timer != nil {
		t.Error("something is left")
	}
}

func TestKeep(t *testing.T) {
	v, _ := fixed(t)
	v.keep(t, a, "314159", time.Minute)
	if got := v.Get(a); string(got) != "314159" {
		t.Errorf("got %q", got)
	}
	if v.Get(b) != nil || v.Get(KeyOf("9a", []byte("public b"))) != nil || v.Get(KeyOf("82", []byte("public a"))) != nil {
		t.Error("another key is unlocked too")
	}
	clear(v.Get(a))
	if got := v.Get(a); string(got) != "314159" {
		t.Errorf("wiping a copy changed it to %q", got)
	}
}

func TestLock(t *testing.T) {
	v, _ := fixed(t)
	v.keep(t, a, "314159", time.Minute)
	v.keep(t, b, "314159", time.Minute)
	v.Lock("9a")
	if v.Get(a) != nil || v.Get(b) == nil {
		t.Error("one slot was to be locked")
	}
	v.Lock("82")
	empty(t, v)
	v.keep(t, a, "314159", time.Minute)
	v.Lock("")
	if v.Get(a) != nil {
		t.Error("everything was to be locked")
	}
	empty(t, v)
}

func TestEnds(t *testing.T) {
	v, c := fixed(t)
	v.keep(t, a, "314159", time.Minute)
	v.keep(t, b, "314159", 2*time.Minute)
	c.pass(time.Minute - time.Nanosecond)
	if v.Get(a) == nil {
		t.Error("a was locked too early")
	}
	c.pass(time.Nanosecond)
	if v.Get(a) != nil || v.Get(b) == nil {
		t.Error("a was to be locked, and b not yet")
	}
	c.pass(time.Minute)
	if v.Get(b) != nil {
		t.Error("b is not locked")
	}
	empty(t, v)
}

func TestLongest(t *testing.T) {
	v, c := fixed(t)
	v.keep(t, a, "314159", 24*time.Hour)
	c.pass(Longest)
	if v.Get(a) != nil {
		t.Errorf("the PIN is kept for more than %v", Longest)
	}
}

// TestWipedUnasked makes no call after the end.
func TestWipedUnasked(t *testing.T) {
	v, err := New()
	if err != nil {
		t.Fatal(err)
	}
	v.keep(t, a, "314159", 20*time.Millisecond)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		v.mu.Lock()
		gone := v.page[0] == 0
		v.mu.Unlock()
		if gone {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the PIN is still there")
		}
	}
	empty(t, v)
}

func TestRefused(t *testing.T) {
	v, c := fixed(t)
	before := v.Epoch("9a")
	v.Lock("9a")
	all := v.Epoch("9a")
	v.Lock("")
	for name, kept := range map[string]bool{
		"locked since": v.Keep(a, []byte("314159"), c.now().Add(time.Minute), before),
		"all locked":   v.Keep(a, []byte("314159"), c.now().Add(time.Minute), all),
		"over":         v.Keep(a, []byte("314159"), c.now(), v.Epoch("9a")),
		"no PIN":       v.Keep(a, nil, c.now().Add(time.Minute), v.Epoch("9a")),
		"too long":     v.Keep(a, []byte("314159265"), c.now().Add(time.Minute), v.Epoch("9a")),
	} {
		if kept {
			t.Errorf("%s: it was kept", name)
		}
	}
	empty(t, v)
}

// TestOtherLocked: a lock of another slot does not prevent an unlock.
func TestOtherLocked(t *testing.T) {
	v, c := fixed(t)
	before := v.Epoch("9a")
	v.Lock("9c")
	if !v.Keep(a, []byte("314159"), c.now().Add(time.Minute), before) {
		t.Error("slot 9c was locked, and 9a is not kept")
	}
}

// TestReplaced unlocks a second key with another PIN: the card has just said that
// this one is right.
func TestReplaced(t *testing.T) {
	v, _ := fixed(t)
	v.keep(t, a, "31415926", time.Minute)
	v.keep(t, b, "271828", time.Minute)
	if got := v.Get(a); string(got) != "271828" {
		t.Errorf("got %q", got)
	}
}

// TestLocked asks the kernel what it does with the page.
func TestLocked(t *testing.T) {
	before := lockedKB(t)
	v, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if after := lockedKB(t); after-before != len(v.page)/1024 {
		t.Errorf("%d kB of memory are locked, and %d kB were before", after, before)
	}
}

func lockedKB(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`VmLck:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatal("no VmLck")
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
