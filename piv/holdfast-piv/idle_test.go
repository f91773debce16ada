package main

import (
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
	"holdfast/test/pace"
	"holdfast/test/pivcard"
)

// free reports whether no program is connected to the desk's card, as the child
// sees it.
func (d *desk) free() bool {
	r := d.reader()
	return r.Present && !r.InUse
}

// inUse reports whether a program is connected to the desk's card.
func (d *desk) inUse() bool { return d.reader().InUse }

// reader returns the state of the card's reader, as the child sees it.
func (d *desk) reader() wire.Reader {
	for _, r := range d.must(wire.Request{Op: wire.Readers}).Readers {
		if r.Name == d.rig.ReaderOf(d.card) {
			return r
		}
	}
	return wire.Reader{}
}

// released waits until the child has let go of the card.
func (d *desk) released() {
	d.t.Helper()
	watcher := start(d.t, d.rig)
	defer watcher.end()
	looking := &desk{watcher, d.rig, d.card}
	looking.await("the card to be let go", looking.free)
}

func TestIdle(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
	d.must(k.unlocking(ownPIN))
	began := time.Now()
	if d.free() || !d.card.Verified() {
		t.Error("the card is let go at once")
	}
	d.released()
	if took := time.Since(began); took < 100*time.Millisecond || pace.Over(t, took, 2*time.Second) {
		t.Errorf("the card was let go after %v, want 200 ms", took)
	}
	if d.card.Verified() {
		t.Error("the next program would find the PIN proved")
	}
	release := d.rig.Hold(t, d.rig.ReaderOf(d.card), true)
	e := d.fails(k.signing(), fault.Busy)
	if e.RetryAfterMS == 0 || !e.Unsent {
		t.Errorf("%+v", e)
	}
	release()
	d.await("the card to be free", d.free)
	k.signs() // the PIN is still there, and no second unlocking was needed
	d.sent(2)
}

// atOnce is sooner than pcscd switches off an unused card, which makes it
// forget too: that takes 400 ms and more.
const atOnce = 350 * time.Millisecond

// TestLockLetsGo has a lock end the state that the card keeps, too.
func TestLockLetsGo(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
	d.must(k.unlocking(ownPIN))
	began := time.Now()
	d.must(wire.Request{Op: wire.Lock})
	d.await("the card to forget", func() bool { return !d.card.Verified() })
	if took := time.Since(began); pace.Over(t, took, atOnce) {
		t.Errorf("it took %v", took)
	}
	all := d.card.Commands()
	if last := all[len(all)-1]; last.Instruction != pivcard.Select || last.Length != 8 {
		t.Errorf("the last command was %+v, want another application to be selected", last)
	}
}

// TestEnd has the child end in each way while the card holds a proved PIN.
func TestEnd(t *testing.T) {
	for name, end := range map[string]func(*desk){
		"input ends": func(d *desk) { d.end() },
		"killed":     func(d *desk) { d.kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := setUp(t, pivcard.Options{})
			k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
			d.must(k.unlocking(ownPIN))
			end(d)
			d.await("the card to forget", func() bool { return !d.card.Verified() })
			d.released()
		})
	}
}

// TestManagementAppletMissing has a card that refuses to select another
// application: it is reset instead.
func TestManagementAppletMissing(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
	d.must(k.unlocking(ownPIN))
	d.card.Order(pivcard.Status(0x6a82).At(pivcard.Select))
	began := time.Now()
	d.must(wire.Request{Op: wire.Lock})
	d.await("the card to forget", func() bool { return !d.card.Verified() })
	if took := time.Since(began); pace.Over(t, took, atOnce) {
		t.Errorf("it took %v", took)
	}
	d.must(k.unlocking(ownPIN))
	k.signs()
}
