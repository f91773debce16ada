package main

import (
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
	"holdfast/test/pivcard"
)

func (d *desk) proving(pin string) wire.Request {
	r := d.on(wire.Slot)
	r.PIN = []byte(pin)
	return r
}

// wantTries compares what a reply says of the tries that are left; -1 is nothing.
func (d *desk) wantTries(what string, got *int, want int) {
	d.t.Helper()
	left := -1
	if got != nil {
		left = *got
	}
	if left != want {
		d.t.Errorf("%s: %d tries, want %d", what, left, want)
	}
}

// TestTries: a look at a slot says how many tries are left, and costs none, nor
// what is unlocked.
func TestTries(t *testing.T) {
	for f, whileVerified := range map[pivcard.Firmware]int{{4, 3, 5}: -1, {5, 2, 4}: -1, {5, 3, 1}: 3, {5, 4, 3}: 3} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			d := setUp(t, pivcard.Options{Firmware: f})
			k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
			d.wantTries("nothing spent", d.must(k.on(wire.Slot)).Tries, 3)
			d.card.SetPINLeft(2)
			d.wantTries("one spent", d.must(k.on(wire.Slot)).Tries, 2)
			d.card.SetPINLeft(0)
			d.wantTries("blocked", d.must(k.on(wire.Slot)).Tries, 0)
			d.card.SetPINLeft(3)
			d.must(k.unlocking(ownPIN))
			d.card.Forget()
			d.wantTries("while the PIN is verified", d.must(k.on(wire.Slot)).Tries, whileVerified)
			k.signs()
			d.sent(0)
		})
	}
}

// TestProve: a PIN that comes with a look is proved as one that unlocks is, and
// not kept.
func TestProve(t *testing.T) {
	for _, f := range []pivcard.Firmware{{4, 3, 5}, {5, 4, 3}} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			d := setUp(t, pivcard.Options{Firmware: f})
			k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
			e := d.fails(d.proving("666666"), fault.PINRequired)
			d.wantTries("wrong", e.Tries, 2)
			if e.Unsent {
				t.Error("a PIN that was sent is said to be unsent")
			}
			if reply := d.must(d.proving(ownPIN)); reply.Slot != nil {
				t.Errorf("%+v, want no slot where none was named", reply.Slot)
			}
			d.fails(k.signing(), fault.PINRequired) // nothing was unlocked by that
			d.sent(2)
			r := k.on(wire.Slot)
			r.PIN = []byte(ownPIN)
			if reply := d.must(r); reply.Slot == nil {
				t.Error("a look with a PIN shows nothing")
			}
			d.fails(d.proving("12"), fault.BadRequest)
			other := d.proving(ownPIN)
			other.Serial++
			d.fails(other, fault.KeyMismatch)
			d.sent(3)
			d.released()
			d.card.SetPINLeft(1)
			e = d.fails(d.proving(ownPIN), fault.PINBlocked)
			d.wantTries("the last try", e.Tries, 1)
			if !e.Unsent {
				t.Error("the last try was spent")
			}
			d.sent(3)
		})
	}
}

// TestProvedOnce: that the key is the right one is asked once on a connection, by a
// look too, and without its certificate where the card says enough of the key.
func TestProvedOnce(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	k := d.key("9a", keys.ES256, 0, keys.PolicyNever, keys.PolicyNever)
	d.released()
	d.card.Forget()
	k.signs()
	if n := d.card.Count(pivcard.GetData); n != 0 {
		t.Errorf("%d objects were read for a signature, want none", n)
	}
	d.released()
	d.must(k.on(wire.Slot))
	before := d.card.Count(pivcard.GetMetadata)
	k.signs()
	if n := d.card.Count(pivcard.GetMetadata) - before; n != 0 {
		t.Errorf("a look was followed by %d more of the same", n)
	}
}
