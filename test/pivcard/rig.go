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
	seen  []uint32 // by slot: pcscd's count of cards that came and went, when the last one had come
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
	r.cards, r.seen = make([]*insertion, r.slots), make([]uint32, r.slots)
	r.forget()
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
	r.collect()
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
