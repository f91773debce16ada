// Package vault keeps a card's PIN in memory for the keys that were unlocked with it,
// and no longer than requested.
//
// Start at [New]. The only copy is in a page of its own, which is locked in memory
// where the kernel allows that, is not dumped, and is cleared when the last key is
// locked. It does not protect against root, nor against a debugger that was attached
// before the process forbade tracing.
package vault

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Longest bounds how long a PIN is kept.
const Longest = time.Hour

// maxPIN is the longest PIN of a card, in bytes (NIST SP 800-73-4, part 2,
// section 2.4.3).
const maxPIN = 8

// A Key identifies a key that can be unlocked by its slot and its public key.
type Key struct {
	slot   string
	public [sha256.Size]byte
}

// KeyOf returns the key in the slot whose SubjectPublicKeyInfo, DER, is public.
func KeyOf(slot string, public []byte) Key { return Key{slot, sha256.Sum256(public)} }

// A Vault keeps one PIN. It is safe for concurrent use, and none of its methods waits
// for a card.
type Vault struct {
	now func() time.Time

	mu    sync.Mutex
	page  []byte // the PIN is at its start
	size  int    // of the PIN
	until map[Key]time.Time
	timer *time.Timer       // locks expired keys; nil while the vault is empty
	all   uint64            // counts locks of all keys
	locks map[string]uint64 // and of one slot
}

// New returns an empty vault.
func New() (*Vault, error) {
	page, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("memory for a PIN: %w", err)
	}
	// Where the limit on locked memory is zero, the PIN may be swapped out, as may the
	// memory of the program into which it was typed.
	_ = unix.Mlock(page)
	if err := unix.Madvise(page, unix.MADV_DONTDUMP); err != nil {
		return nil, fmt.Errorf("memory for a PIN: %w", err)
	}
	return &Vault{now: time.Now, page: page, until: map[Key]time.Time{}, locks: map[string]uint64{}}, nil
}

// Epoch changes when the slot is locked. [Vault.Keep] takes the epoch from before the
// PIN was proved.
func (v *Vault) Epoch(slot string) uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.epoch(slot)
}

func (v *Vault) epoch(slot string) uint64 { return v.all + v.locks[slot] }

// Keep keeps a copy of pin for k until the given time, or [Longest] from now when
// that is earlier. A PIN that differs from the one kept so far replaces it, because
// the card has just accepted it. It reports false, and keeps nothing, when
// the slot was locked since epoch or the time is over.
func (v *Vault) Keep(k Key, pin []byte, until time.Time, epoch uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	// Wall clock: the monotonic clock stops while the machine sleeps.
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

// Lock locks the keys in the slot, or all keys when slot is empty.
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

// expire locks expired keys, and wipes the PIN with the last one.
func (v *Vault) expire() {
	now := v.now().Round(0)
	for k, until := range v.until {
		if !until.After(now) {
			delete(v.until, k)
		}
	}
	v.schedule(now)
}

// schedule sets the timer for the next key that expires.
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
