package pivcard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// PC/SC errors that tests wait for (pcsclite.h).
const (
	errSharing     = pcscError(0x8010000b)
	errNoCard      = pcscError(0x8010000c)
	errNotTransact = pcscError(0x80100016)
)

// TestTwoCards has two cards in one pcscd: each has its own reader, serial
// number and journal.
func TestTwoCards(t *testing.T) {
	t.Parallel()
	a, b := NewCard(Options{Serial: 1}), NewCard(Options{Serial: 2})
	r := Start(t, 2, a, b)
	for want, c := range map[byte]*Card{1: a, 2: b} {
		if got := through(t, r, c).want(ok, GetSerial, 0, 0); got[3] != want {
			t.Errorf("reader %s: serial %x, want %d", r.ReaderOf(c), got, want)
		}
		if !strings.Contains(r.ReaderOf(c), "Yubico YubiKey") {
			t.Errorf("the reader's name is %q", r.ReaderOf(c))
		}
		if got := c.Count(GetSerial); got != 1 {
			t.Errorf("card %d was asked %d times for its serial number", want, got)
		}
	}
}

// TestFourCards needs more readers than one entry of pcscd's configuration has.
func TestFourCards(t *testing.T) {
	t.Parallel()
	r := Start(t, 3)
	var cards []*Card
	for i := range 4 {
		c := r.NewCard(Options{Serial: uint32(i + 1)})
		if r.Insert(c) == nil {
			cards = append(cards, c)
		}
	}
	for i, c := range cards {
		if got := through(t, r, c).want(ok, GetSerial, 0, 0); int(got[3]) != i+1 {
			t.Errorf("reader %s: serial %x, want %d", r.ReaderOf(c), got, i+1)
		}
	}
	r.tb = nil // from here on errors are for us
	if err := r.Insert(NewCard(Options{})); err == nil || err.Error() != "no reader is free" {
		t.Errorf("a fifth card: %v", err)
	}
	if err := r.Insert(cards[0]); err == nil {
		t.Error("a card is in two readers")
	}
}

// TestRemoveAndInsert swaps cards in one reader. A handle from before is of no
// use, and the PIN is forgotten.
func TestRemoveAndInsert(t *testing.T) {
	t.Parallel()
	a, b := NewCard(Options{Serial: 1}), NewCard(Options{Serial: 2})
	r := Start(t, 1, a)
	s := through(t, r, a)
	s.verify(ok, "123456")
	name := r.ReaderOf(a)
	r.Remove(a)
	r.Remove(a)
	if answer, err := s.exchange([]byte{0, 0xfd, 0, 0}); err == nil {
		t.Errorf("a card that is out answers %x", answer)
	}
	if client, err := r.open(name, shareShared); !errors.Is(err, errNoCard) {
		t.Errorf("an empty reader opens: %v, %v", client, err)
	}
	r.Insert(b)
	if r.ReaderOf(b) != name || r.ReaderOf(a) != "" {
		t.Errorf("cards in %q and %q, want the second in %q", r.ReaderOf(a), r.ReaderOf(b), name)
	}
	if got := through(t, r, b).want(ok, GetSerial, 0, 0); got[3] != 2 {
		t.Errorf("serial %x, want 2", got)
	}
	r.Remove(b)
	r.Insert(a)
	if a.Verified() {
		t.Error("the card has kept its PIN without power")
	}
	through(t, r, a).want(0x63c3, Verify, 0, refPIN)
}

func TestRestart(t *testing.T) {
	t.Parallel()
	a, b := NewCard(Options{Serial: 1}), NewCard(Options{Serial: 2})
	r := Start(t, 2, a, b)
	r.Remove(a)
	s := through(t, r, b)
	s.verify(ok, "123456")
	pid := r.Pid()
	r.Restart()
	if _, err := s.exchange([]byte{0, 0xfd, 0, 0}); err == nil {
		t.Error("a handle has survived pcscd")
	}
	if r.Pid() == pid || alive(pid) {
		t.Errorf("pcscd %d runs on", pid)
	}
	if got := through(t, r, b).want(ok, GetSerial, 0, 0); got[3] != 2 || r.Reader(1) != r.ReaderOf(b) {
		t.Errorf("serial %x in %q", got, r.ReaderOf(b))
	}
	if b.Verified() {
		t.Error("the card has kept its PIN without power")
	}
	pid = r.Pid()
	r.StopPCSCD()
	if _, err := dialPCSC(r.Socket()); err == nil || r.Pid() != 0 || alive(pid) {
		t.Errorf("pcscd %d is stopped and runs: %v", pid, err)
	}
	r.tb = nil
	if err := r.Insert(a); err == nil {
		t.Error("a card went into a reader without pcscd")
	}
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	s = through(t, r, b)
	b.Order(Removed())
	answer, err := s.exchange(version)
	lost(t, s, reply{answer, err})
	if err := r.Restart(); err != nil || r.ReaderOf(b) != "" {
		t.Errorf("a card that fell out is in %q after a restart: %v", r.ReaderOf(b), err)
	}
}

func alive(pid int) bool {
	_, err := os.Stat(fmt.Sprint("/proc/", pid))
	return err == nil
}

// TestPrivate looks for what a rig could leave on the machine.
func TestPrivate(t *testing.T) {
	t.Parallel()
	r := Start(t, 1)
	for _, kind := range []string{"net", "mnt"} {
		mine, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		if theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", r.Pid(), kind)); err != nil || theirs == mine {
			t.Errorf("pcscd has the machine's %s namespace: %q, %v", kind, theirs, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), r.dir) {
		t.Errorf("the rig's mounts are seen outside: %v", err)
	}
	if want := filepath.Join(r.dir, "run/pcscd.comm"); r.Socket() != want || r.Env()[0] != "PCSCLITE_CSOCK_NAME="+want {
		t.Errorf("socket %s, environment %q", r.Socket(), r.Env())
	}
	pem, err := os.ReadFile(r.RootFile())
	if err != nil || string(pem) != string(r.Maker.PEM()) {
		t.Errorf("the root's file: %q, %v", pem, err)
	}
	r.Close()
	r.Close()
	if r.Pid() != 0 {
		t.Error("pcscd runs after Close")
	}
}

// TestHold has another program that holds a card.
func TestHold(t *testing.T) {
	t.Parallel()
	c := NewCard(Options{})
	r := Start(t, 1, c)
	release := r.Hold(t, r.ReaderOf(c), true)
	if _, err := r.open(r.ReaderOf(c), shareShared); !errors.Is(err, errSharing) {
		t.Errorf("held exclusively: %v, want %v", err, errSharing)
	}
	release()
	release()
	eventually(t, func() error { return try(r, c, shareExclusive) })

	release = r.Hold(t, r.ReaderOf(c), false)
	if _, err := r.open(r.ReaderOf(c), shareExclusive); !errors.Is(err, errSharing) {
		t.Errorf("held shared, wanted alone: %v, want %v", err, errSharing)
	}
	through(t, r, c).want(ok, GetVersion, 0, 0)
	release()
}

// TestLock has another program in the middle of a transaction.
func TestLock(t *testing.T) {
	t.Parallel()
	c := NewCard(Options{})
	r := Start(t, 1, c)
	s := through(t, r, c)
	release := r.Lock(t, r.ReaderOf(c))
	if _, err := s.exchange([]byte{0, 0xfd, 0, 0}); !errors.Is(err, errSharing) {
		t.Errorf("during another's transaction: %v, want %v", err, errSharing)
	}
	release()
	eventually(t, func() error {
		_, err := s.exchange([]byte{0, 0xfd, 0, 0})
		return err
	})
}

// try opens a card and lets it go.
func try(r *Rig, c *Card, share uint32) error {
	client, err := r.open(r.ReaderOf(c), share)
	if err == nil {
		client.close()
	}
	return err
}

// eventually waits for pcscd to notice that a client has gone.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	err := errors.New("never tried")
	for deadline := time.Now().Add(testTimeout); err != nil && time.Now().Before(deadline); {
		if err = f(); err != nil {
			time.Sleep(time.Millisecond)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// TestNeedsReader calls Hold and Lock without a card in the reader.
func TestNeedsReader(t *testing.T) {
	t.Parallel()
	r := Start(t, 1)
	for name, f := range map[string]func(TB){
		"Hold": func(tb TB) { r.Hold(tb, r.Reader(0), true)() },
		"Lock": func(tb TB) { r.Lock(tb, r.Reader(0))() },
	} {
		tb := &record{}
		f(tb)
		if !strings.Contains(tb.fatal, errNoCard.Error()) {
			t.Errorf("%s: %q", name, tb.fatal)
		}
	}
}

// A record is a TB that notes what would have ended the test.
type record struct{ fatal string }

func (r *record) Helper()                   {}
func (r *record) Cleanup(func())            {}
func (r *record) Fatalf(f string, a ...any) { r.fatal = fmt.Sprintf(f, a...) }
