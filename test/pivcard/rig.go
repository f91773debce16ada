package pivcard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// A TB is what the package wants of a test. Every [testing.TB] is one.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// A Rig is a pcscd of one's own and its readers. Methods that return an error
// also end the test, when the Rig was made by [Start].
type Rig struct {
	Maker *Authority // certifies the cards of NewCard

	tb    TB
	dir   string
	slots int

	mu    sync.Mutex // guards the rest, and is held while cards come and go
	proc  *pcscd     // nil when stopped
	cards []*insertion
}

// Start starts a rig with room for slots cards (rounded up to even), puts the
// cards in, and waits until pcscd has seen them. It is gone when tb ends, and
// its pcscd when the test process dies.
func Start(tb TB, slots int, cards ...*Card) *Rig {
	tb.Helper()
	dir, err := os.MkdirTemp("", "piv-") // a socket's path has at most 107 bytes
	if err != nil {
		tb.Fatalf("pivcard: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	r, err := New(dir, slots)
	if err != nil {
		tb.Fatalf("pivcard: %v", err)
	}
	tb.Cleanup(r.Close)
	r.tb = tb
	for _, c := range cards {
		if r.Insert(c) != nil {
			break
		}
	}
	return r
}

// New starts a rig in a directory that exists, for a program that is no test.
// Close ends it; the caller removes the directory.
func New(dir string, slots int) (*Rig, error) {
	r := &Rig{Maker: NewAuthority("Test PIV Root CA"), dir: dir, slots: max(perEntry, slots+slots%perEntry)}
	for _, d := range []string{r.run(), r.conf()} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(configure(r.dir, r.conf(), r.slots), os.WriteFile(r.RootFile(), r.Maker.PEM(), 0o644)); err != nil {
		return nil, err
	}
	r.cards = make([]*insertion, r.slots)
	p, err := launchPCSCD(r.dir, r.slots)
	if err != nil {
		return nil, err
	}
	r.proc = p
	return r, nil
}

func (r *Rig) run() string  { return filepath.Join(r.dir, "run") }
func (r *Rig) conf() string { return filepath.Join(r.dir, "conf") }

// NewCard makes a card that the rig's authority has certified.
func (r *Rig) NewCard(o Options) *Card {
	if o.Maker == nil {
		o.Maker = r.Maker
	}
	return NewCard(o)
}

// Socket is the value for PCSCLITE_CSOCK_NAME.
func (r *Rig) Socket() string { return filepath.Join(r.run(), "pcscd.comm") }

// Env points libpcsclite, and with it piv-go, OpenSC and Yubico's tools, at the
// rig; to be appended to os.Environ().
func (r *Rig) Env() []string { return []string{"PCSCLITE_CSOCK_NAME=" + r.Socket()} }

// RootFile names a PEM file with the certificate of the rig's authority.
func (r *Rig) RootFile() string { return filepath.Join(r.dir, "attestation-root.pem") }

// Reader returns a reader's name; slots count from 0.
func (r *Rig) Reader(slot int) string {
	return fmt.Sprintf("%s 00 %02X", entryName(slot), slot%perEntry)
}

// ReaderOf returns the name of the reader that the card is in, or "".
func (r *Rig) ReaderOf(c *Card) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slot := r.slotOf(c); slot >= 0 {
		return r.Reader(slot)
	}
	return ""
}

// Pid returns pcscd's process id, or 0 when it is stopped.
func (r *Rig) Pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc == nil {
		return 0
	}
	return r.proc.cmd.Process.Pid
}

// Insert puts a card into the first free reader, and returns when pcscd has
// seen it there. A card that a fault has removed can be inserted again.
func (r *Rig) Insert(c *Card) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.collect()
	if r.slotOf(c) >= 0 {
		return r.report(errors.New("the card is in a reader"))
	}
	for slot, i := range r.cards {
		if i == nil {
			return r.report(r.insert(c, slot))
		}
	}
	return r.report(errors.New("no reader is free"))
}

func (r *Rig) insert(c *Card, slot int) error {
	if r.proc == nil {
		return errors.New("pcscd is stopped")
	}
	// pcscd looks every 400 ms, and must see the card that was there go.
	if err := r.await(slot, false); err != nil {
		return err
	}
	conn, err := r.proc.dial(slot)
	if err != nil {
		return err
	}
	i := &insertion{card: c, conn: conn, gone: make(chan struct{}), left: make(chan struct{}), done: make(chan struct{})}
	r.cards[slot] = i
	go i.serve()
	return r.await(slot, true)
}

// await waits until pcscd sees a card in the slot, or none.
func (r *Rig) await(slot int, there bool) error {
	return r.proc.until(func(readers []readerState) bool {
		for _, reader := range readers {
			if reader.name() == r.Reader(slot) {
				return reader.hasCard() == there
			}
		}
		return false
	})
}

// Remove takes a card out, in the middle of a command if it has one, and
// returns when pcscd has noticed. It does nothing when the card is in no reader.
func (r *Rig) Remove(c *Card) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	slot := r.slotOf(c)
	if slot < 0 {
		return nil
	}
	r.cards[slot].end()
	r.cards[slot] = nil
	if r.proc == nil {
		return nil
	}
	return r.report(r.await(slot, false))
}

// slotOf returns where the card is, or -1.
func (r *Rig) slotOf(c *Card) int {
	for slot, i := range r.cards {
		if i != nil && i.card == c {
			return slot
		}
	}
	return -1
}

// collect frees the readers of cards that a fault has removed. Those that were
// in when pcscd was stopped are still in.
func (r *Rig) collect() {
	for slot, i := range r.cards {
		if i != nil && i.fallen() {
			<-i.done
			r.cards[slot] = nil
		}
	}
}

// StopPCSCD kills pcscd: its socket refuses connections, and clients find
// theirs closed. The cards lose their power and stay where they are.
func (r *Rig) StopPCSCD() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop()
}

func (r *Rig) stop() {
	r.collect()
	if r.proc != nil {
		r.proc.kill()
		r.proc = nil
	}
	for _, i := range r.cards {
		if i != nil {
			i.end()
		}
	}
}

// Restart kills pcscd unless it is stopped, starts it again and puts the cards
// into the readers they were in.
func (r *Rig) Restart() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop()
	p, err := launchPCSCD(r.dir, r.slots)
	if err != nil {
		return r.report(err)
	}
	r.proc = p
	for slot, i := range r.cards {
		if i == nil {
			continue
		}
		if err := r.insert(i.card, slot); err != nil {
			return r.report(err)
		}
	}
	return nil
}

// Close takes the cards out and ends pcscd.
func (r *Rig) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop()
	clear(r.cards)
}

func (r *Rig) report(err error) error {
	if err != nil && r.tb != nil {
		r.tb.Helper()
		r.tb.Fatalf("pivcard: %v", err)
	}
	return err
}
