package main

import (
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
	"holdfast/test/pivcard"
)

// TestPINPolicies counts the PINs that signatures take.
func TestPINPolicies(t *testing.T) {
	for policy, want := range map[keys.Policy]int{keys.PolicyNever: 0, keys.PolicyOnce: 1, keys.PolicyAlways: 3} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			d := setUp(t, pivcard.Options{})
			k := d.key("9c", keys.ES256, 0, policy, keys.PolicyNever)
			if policy != keys.PolicyNever {
				d.fails(k.signing(), fault.PINRequired)
				d.must(k.unlocking(ownPIN))
				d.sent(1)
				d.end() // what one child has is not another's
				d.child = start(t, d.rig)
				d.fails(k.signing(), fault.PINRequired)
				d.card.Forget()
				d.must(k.unlocking(ownPIN))
			}
			k.signs()
			k.signs()
			d.sent(want)
		})
	}
}

func TestUnlockIsPerKey(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	a := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
	b := d.key("82", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
	d.must(a.unlocking(ownPIN))
	a.signs()
	if e := d.fails(b.signing(), fault.PINRequired); !e.Unsent {
		t.Errorf("%+v: the other key's PIN was sent", e)
	}
	d.must(b.unlocking(ownPIN))
	d.must(wire.Request{Op: wire.Lock, Slot: "9a"})
	d.fails(a.signing(), fault.PINRequired)
	b.signs()
	d.must(wire.Request{Op: wire.Lock})
	d.fails(b.signing(), fault.PINRequired)
}

func TestUnlockEnds(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
	r := k.unlocking(ownPIN)
	r.Until = time.Now().Add(700 * time.Millisecond)
	d.must(r)
	k.signs()
	d.await("the end of the unlocking", func() bool { return d.do(k.signing()).Error != nil })
	if time.Now().Before(r.Until) {
		t.Error("the key was locked too early")
	}
	d.fails(k.signing(), fault.PINRequired)
	r.Until = time.Now().Add(-time.Second)
	d.fails(r, fault.BadRequest)
}

// TestUnlockOvertaken: an Unlock that a Lock overtakes fails with that reason, and not
// with a wrong PIN; the Lock of another key does not affect it.
func TestUnlockOvertaken(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
	for slot, want := range map[string]bool{"9a": true, "": true, "9c": false} {
		d.released()
		d.card.Forget()
		d.card.Order(pivcard.Hang().At(pivcard.Verify))
		unlocking := d.send(k.unlocking(ownPIN))
		d.await("the PIN", func() bool { return d.card.Count(pivcard.Verify) > 0 })
		lock := d.on(wire.Lock)
		lock.Slot = slot
		d.must(lock)
		d.card.Mend()
		reply := d.answer()
		e := reply.Error
		if shut := e != nil && e.Shut && e.Kind == fault.Busy && !e.Unsent; shut != want || reply.ID != unlocking || !want && e != nil {
			t.Errorf("lock %q while 9a is being unlocked: %+v, overtaken: %v", slot, e, want)
		}
		if signed := d.do(k.signing()).Error == nil; signed == want {
			t.Errorf("lock %q while 9a is being unlocked: it signs: %v", slot, signed)
		}
	}
}

func TestWrongPIN(t *testing.T) {
	for _, f := range []pivcard.Firmware{{4, 3, 5}, {5, 2, 4}, {5, 3, 1}, {5, 4, 3}} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			d := setUp(t, pivcard.Options{Firmware: f})
			k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
			e := d.fails(k.unlocking("666666"), fault.PINRequired)
			if e.Tries == nil || *e.Tries != 2 || e.Unsent {
				t.Errorf("%+v, want two tries left", e)
			}
			d.fails(k.unlocking("666666"), fault.PINRequired)
			e = d.fails(k.unlocking("666666"), fault.PINBlocked)
			if e.Tries == nil || *e.Tries != 1 || !e.Unsent || e.Hint == "" && e.Next.Do == "" {
				t.Errorf("%+v, want the last try to be left alone", e)
			}
			d.fails(k.unlocking(ownPIN), fault.PINBlocked) // not even for the right one
			d.sent(2)
			d.card.SetPINLeft(0)
			e = d.fails(k.unlocking(ownPIN), fault.PINBlocked)
			if e.Tries == nil || *e.Tries != 0 || !e.Unsent {
				t.Errorf("%+v, want a blocked PIN", e)
			}
			d.sent(2)
		})
	}
}

// TestTriesContradict: of what a card says of the tries left, the lowest number counts.
func TestTriesContradict(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
	d.card.ClaimPINLeft(3)
	d.card.SetPINLeft(1)
	e := d.fails(k.unlocking("666666"), fault.PINBlocked)
	if e.Tries == nil || *e.Tries != 1 || !e.Unsent {
		t.Errorf("%+v, want the last try to be left alone", e)
	}
	if tries := d.must(d.on(wire.Slot)).Tries; tries == nil || *tries != 1 {
		t.Errorf("%v tries are left, want 1", tries)
	}
	d.sent(0)
	d.card.SetPINLeft(3)
	d.must(k.unlocking(ownPIN))
}

// TestTriesAfterSuccess: the reply to a PIN that the card has accepted or replaced says how
// many tries are left.
func TestTriesAfterSuccess(t *testing.T) {
	for _, f := range []pivcard.Firmware{{5, 2, 4}, {5, 4, 3}} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			d := setUp(t, pivcard.Options{Firmware: f})
			k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
			change, unblock := d.on(wire.ChangePIN), d.on(wire.Unblock)
			change.Old, change.New = []byte(ownPIN), []byte("271828")
			unblock.Old, unblock.New = []byte(ownPUK), []byte(ownPIN)
			for _, r := range []wire.Request{k.unlocking(ownPIN), change, unblock} {
				left := 2
				if r.Op == wire.Unblock {
					left = 0
				}
				d.card.SetPINLeft(left)
				reply := d.must(r)
				if want := 3; !reply.Recounted || reply.Tries != nil && *reply.Tries != want || reply.Tries == nil && f.AtLeast(pivcard.Firmware{5, 3, 0}) {
					t.Errorf("%s: %+v, want %d tries left", r.Op, reply, want)
				}
			}
		})
	}
}

// TestChangedElsewhere has another program change the PIN behind the child's back:
// the child tries the one that it has a single time.
func TestChangedElsewhere(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
	d.must(k.unlocking(ownPIN))
	d.released()
	d.yubico("-a", "change-pin", "-P", ownPIN, "-N", "271828")
	d.card.Forget()
	if e := d.fails(k.signing(), fault.PINRequired); e.Unsent || e.Tries == nil || *e.Tries != 2 {
		t.Errorf("%+v, want two tries left", e)
	}
	d.fails(k.signing(), fault.PINRequired)
	d.sent(1)
	d.card.SetPINLeft(3)
	d.must(k.unlocking("271828"))
	d.released()
	d.yubico("-a", "change-pin", "-P", "271828", "-N", ownPIN)
	d.card.SetPINLeft(1)
	d.card.Forget()
	if e := d.fails(k.signing(), fault.PINBlocked); !e.Unsent {
		t.Errorf("%+v", e)
	}
	d.sent(0)
}

func TestOtherCard(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{Serial: 1111})
	k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
	d.must(k.unlocking(ownPIN))
	d.released()
	d.rig.Remove(d.card)
	other := d.rig.NewCard(pivcard.Options{Serial: 2222, PIN: "271828", PUK: ownPUK, Manage: ownManage})
	d.rig.Insert(other)
	for _, r := range []wire.Request{k.signing(), k.unlocking(ownPIN), k.on(wire.ChangePIN), k.on(wire.SetUp), k.on(wire.Generate), k.on(wire.Inspect)} {
		r.Reader = d.rig.ReaderOf(other)
		if e := d.fails(r, fault.KeyMismatch); !e.Unsent {
			t.Errorf("%s: %+v", r.Op, e)
		}
	}
	if counts := other.Counts(); other.PINTries() != 0 || counts[pivcard.ChangeReference] != 0 || counts[pivcard.Generate] != 0 {
		t.Errorf("the other card was sent %v", counts)
	}
}

// TestOtherKey exchanges the key in a slot.
func TestOtherKey(t *testing.T) {
	for _, f := range []pivcard.Firmware{{4, 3, 5}, {5, 4, 3}} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			d := setUp(t, pivcard.Options{Firmware: f})
			k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
			d.must(k.unlocking(ownPIN))
			r := d.on(wire.Generate)
			r.Slot, r.Algorithm, r.PINPolicy, r.TouchPolicy, r.ManagementKey = "9a", "ES256", keys.PolicyOnce, keys.PolicyNever, ownManage
			d.fails(r, fault.BadRequest) // the slot is taken
			r.Overwrite = true
			d.must(r)
			d.card.Forget()
			d.fails(k.signing(), fault.KeyMismatch)
			d.fails(k.unlocking(ownPIN), fault.KeyMismatch)
			k.slot = "95"
			d.fails(k.signing(), fault.KeyLost)
			d.sent(0)
		})
	}
}

func TestChangePINAndPUK(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
	d.must(k.unlocking(ownPIN))
	change := func(op wire.Op, old, new string) wire.Request {
		r := d.on(op)
		r.Old, r.New = []byte(old), []byte(new)
		return r
	}
	d.fails(change(wire.ChangePIN, ownPIN, "123456"), fault.BadRequest)
	d.fails(change(wire.ChangePUK, ownPUK, "12345678"), fault.BadRequest)
	d.fails(change(wire.Unblock, ownPUK, "1234"), fault.BadRequest)
	d.must(change(wire.ChangePIN, ownPIN, "271828"))
	d.fails(k.signing(), fault.PINRequired)
	d.must(k.unlocking("271828"))
	if e := d.fails(change(wire.ChangePIN, ownPIN, "111111"), fault.PINRequired); e.Tries == nil || *e.Tries != 2 {
		t.Errorf("%+v", e)
	}
	d.card.SetPINLeft(1)
	d.fails(change(wire.ChangePIN, "271828", "111111"), fault.PINBlocked)
	d.must(change(wire.ChangePUK, ownPUK, "99999999"))
	d.fails(change(wire.Unblock, ownPUK, ownPIN), fault.PINRequired)
	d.must(change(wire.Unblock, "99999999", ownPIN))
	d.must(k.unlocking(ownPIN))
	d.card.SetPUKLeft(1)
	if e := d.fails(change(wire.Unblock, "00000000", ownPIN), fault.PINBlocked); !e.Unsent || d.card.PUKLeft() != 1 {
		t.Errorf("%+v, and %d tries of the PUK are left", e, d.card.PUKLeft())
	}
	d.card.SetPUKLeft(0)
	d.fails(change(wire.ChangePUK, "99999999", ownPUK), fault.PINBlocked)
}
