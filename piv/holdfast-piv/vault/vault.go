// Package vault keeps a card's PIN in memory for the keys that were unlocked
// with it, for as long as was asked and not a moment longer.
//
// Start at [New]. The one copy lies in a page of its own that is not swapped out
// where the kernel allows that, not dumped, and cleared when the last key is
// locked. It does not protect against root, nor against a debugger that was there
// before the process gave up being traced.
package vault

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Longest is how long a PIN is kept at most, whatever was asked.
const Longest = time.Hour

// maxPIN is the longest PIN of a card, in bytes (NIST SP 800-73-4, part 2,
// section 2.4.3).
const maxPIN = 8

// A Key is a key that can be unlocked: what is in a slot, and not just the slot.
type Key struct {
	slot   string
	public [sha256.Size]byte
}

// KeyOf returns the key in the slot whose SubjectPublicKeyInfo, DER, is public.
func KeyOf(slot string, public []byte) Key { return Key{slot, sha256.Sum256(public)} }

// A Vault keeps one PIN. It is safe for concurrent use, and nothing that it does
// waits for a card.
type Vault struct {
	now func() time.Time

	mu    sync.Mutex
	page  []byte // the PIN is at its start
	size  int    // of the PIN
	until map[Key]time.Time
	timer *time.Timer       // wipes what is over; nil while nothing is kept
	all   uint64            // counts locks of everything
	locks map[string]uint64 // and those of one slot
}

// New returns an empty vault.
func New() (*Vault, error) {
	page, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("memory for a PIN: %w", err)
	}
	// Where the limit on locked memory is zero the PIN may be swapped out: the same
	// happens to the memory of the program that it was typed into.
	_ = unix.Mlock(page)
	if err := unix.Madvise(page, unix.MADV_DONTDUMP); err != nil {
		return nil, fmt.Errorf("memory for a PIN: %w", err)
	}
	return &Vault{now: time.Now, page: page, until: map[Key]time.Time{}, locks: map[string]uint64{}}, nil
}

// Epoch changes when the slot is locked. [Vault.Keep] wants the one from before
// the PIN was proved.
func (v *Vault) Epoch(slot string) uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.epoch(slot)
}

func (v *Vault) epoch(slot string) uint64 { return v.all + v.locks[slot] }

// Keep keeps a copy of pin for k until the given time, or [Longest] from now when
// that is earlier. A PIN that differs from the one kept so far replaces it: the
// card has just proved which is right. It reports false, and keeps nothing, when
// the slot was locked since epoch or the time is over.
func (v *Vault) Keep(k Key, pin []byte, until time.Time, epoch uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	// Wall clock: the monotonic one stands still while the machine sleeps.
	now := v.now().Round(0)
	until = until.Round(0)
	if last := now.Add(Longest); until.After(last) {
		until = last
	}
	if v.epoch(k.slot) != epoch || !until.After(now) || len(pin) == 0 || len(pin) > maxPIN {
		return false
	}
	clear(v.page)
	v.size = copy(v.page, pin)
	v.until[k] = until
	v.schedule(now)
	return true
}

// Get returns a copy of the PIN when k is unlocked, and nil otherwise. The caller
// wipes it.
func (v *Vault) Get(k Key) []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.expire()
	if _, ok := v.until[k]; !ok {
		return nil
	}
	return append(make([]byte, 0, maxPIN), v.page[:v.size]...)
}

// Lock forgets what is kept for the keys in the slot, or everything when slot is
// empty.
func (v *Vault) Lock(slot string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if slot == "" {
		v.all++
	} else {
		v.locks[slot]++
	}
	for k := range v.until {
		if slot == "" || k.slot == slot {
			delete(v.until, k)
		}
	}
	v.expire()
}

// expire forgets what is over, and the PIN with the last key.
func (v *Vault) expire() {
	now := v.now().Round(0)
	for k, until := range v.until {
		if !until.After(now) {
			delete(v.until, k)
		}
	}
	v.schedule(now)
}

// schedule has the next thing that is over forgotten in time.
func (v *Vault) schedule(now time.Time) {
	if v.timer != nil {
		v.timer.Stop()
		v.timer = nil
	}
	if len(v.until) == 0 {
		clear(v.page)
		v.size = 0
		return
	}
	next := Longest
	for _, until := range v.until {
		next = min(next, until.Sub(now))
	}
	v.timer = time.AfterFunc(next, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.expire()
	})
}
