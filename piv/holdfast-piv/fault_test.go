package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
	"holdfast/test/pace"
	"holdfast/test/pivcard"
)

// unlocked starts a desk with an unlocked key.
func unlocked(t *testing.T, touch keys.Policy, o pivcard.Options) *made {
	t.Helper()
	d := setUp(t, o)
	k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, touch)
	d.must(k.unlocking(ownPIN))
	return k
}

func TestRemoved(t *testing.T) {
	for name, flaw := range map[string]pivcard.Fault{"before": pivcard.Removed(), "after": pivcard.RemovedAfter()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := unlocked(t, keys.PolicyNever, pivcard.Options{})
			reader := k.rig.ReaderOf(k.card)
			k.card.Order(flaw.At(pivcard.Authenticate))
			k.fails(k.signing(), fault.DeviceAbsent)
			absent := k.signing()
			absent.Reader = reader
			k.fails(absent, fault.DeviceAbsent)
			k.rig.Insert(k.card)
			k.fails(k.signing(), fault.PINRequired) // what was unlocked went with the card
			k.must(k.unlocking(ownPIN))
			k.signs()
		})
	}
}

// TestRemovedWhileIdle takes the card out and puts it in again while the child has
// no connection to it.
func TestRemovedWhileIdle(t *testing.T) {
	t.Parallel()
	k := unlocked(t, keys.PolicyNever, pivcard.Options{})
	k.released()
	k.rig.Remove(k.card)
	k.rig.Insert(k.card)
	k.fails(k.signing(), fault.PINRequired)
	k.sent(1)
}

func TestNonsense(t *testing.T) {
	for name, flaw := range map[string]pivcard.Fault{
		"one byte":        pivcard.Answer([]byte{0x90}),
		"status alone":    pivcard.Answer([]byte{0x90, 0x00}),
		"one byte of it":  pivcard.Answer([]byte{0x01, 0x90, 0x00}),
		"64 KiB":          pivcard.Answer(append(bytes.Repeat([]byte{0x30}, 65_533), 0x90, 0x00)),
		"unknown status":  pivcard.Status(0x6f00),
		"cut in the tags": pivcard.Answer([]byte{0x7c, 0x46, 0x82, 0x44, 0x30, 0x90, 0x00}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := setUp(t, pivcard.Options{})
			k := d.key("9a", keys.ES256, 0, keys.PolicyNever, keys.PolicyNever)
			for _, ins := range []pivcard.Instruction{pivcard.Authenticate, pivcard.GetMetadata, pivcard.GetSerial, pivcard.GetVersion, pivcard.Select} {
				d.end()
				d.child = start(t, d.rig)
				d.card.Order(flaw.At(ins))
				r := k.signing()
				reply := d.do(r)
				if reply.Error == nil && k.verify(r, reply) != nil {
					t.Errorf("%v: a signature that does not verify", ins)
				}
				if reply.Error != nil && reply.Error.Kind != fault.DeviceFailed && reply.Error.Kind != fault.DeviceAbsent {
					t.Errorf("%v: %+v", ins, reply.Error)
				}
				d.card.Mend()
				if ins == pivcard.Select && reply.Error != nil {
					d.ended() // piv-go keeps a reader whose card it could not select
					d.child = start(t, d.rig)
				}
				k.signs() // and the next one is well again
			}
		})
	}
}

// TestPanic orders the answer on which piv-go panics: the child says so, and ends.
func TestPanic(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	k := d.key("9a", keys.ES256, 0, keys.PolicyNever, keys.PolicyNever)
	r := d.on(wire.Generate)
	r.Slot, r.Algorithm, r.PINPolicy, r.TouchPolicy, r.ManagementKey = "82", "ES256", keys.PolicyNever, keys.PolicyNever, ownManage
	d.must(k.signing())
	// PIN, PUK and management key are looked at, the latter once more when it is
	// proved; then it is piv-go that asks.
	d.card.Order(pivcard.Answer([]byte{0x01, 0x90, 0x00}).At(pivcard.GetMetadata).Nth(6))
	e := d.fails(r, fault.DeviceFailed)
	if !strings.Contains(e.Message, "is malformed") {
		t.Errorf("%+v", e)
	}
	if code := d.ended(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	d.child = start(t, d.rig)
	k.signs()
}

// TestEndless orders an answer that never ends. piv-go collects it for ever, and
// nothing but the end of the process ends that; ours has a bound.
func TestEndless(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	k := d.key("9a", keys.ES256, 0, keys.PolicyNever, keys.PolicyNever)
	d.card.Order(pivcard.Endless().At(pivcard.GetData))
	d.fails(d.on(wire.Inspect), fault.DeviceFailed)
	d.must(k.signing())
	before := d.card.Count(pivcard.GetResponse)
	d.card.Order(pivcard.Endless().At(pivcard.Authenticate))
	d.send(k.signing())
	d.await("piv-go to be caught in it", func() bool { return d.card.Count(pivcard.GetResponse) > before+1000 })
	d.must0(wire.Request{Op: wire.Lock})
	d.kill()
	d.card.Mend()
	d.child = start(t, d.rig)
	k.signs()
}

// must0 is must for what is answered while another request waits.
func (c *child) must0(r wire.Request) {
	c.t.Helper()
	if id, reply := c.send(r), c.answer(); reply.ID != id || reply.Error != nil {
		c.t.Fatalf("%s: %+v", r.Op, reply)
	}
}

// TestNotPIV has a card without the PIV application: the child says so. Looking
// costs nothing; using it costs the child, since piv-go keeps the reader.
func TestNotPIV(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{NotPIV: true})
	d.fails(d.on(wire.Identify), fault.DeviceAbsent)
	d.fails(d.on(wire.Identify), fault.DeviceAbsent)
	d.fails(d.on(wire.Inspect), fault.DeviceAbsent)
	if code := d.ended(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	d.released()
}

// TestHung has a lock answered, and the end of the input heeded, while the card is
// silent.
func TestHung(t *testing.T) {
	t.Parallel()
	k := unlocked(t, keys.PolicyNever, pivcard.Options{})
	k.card.Order(pivcard.Hang().At(pivcard.Authenticate))
	before := k.card.Count(pivcard.Authenticate)
	k.send(k.signing())
	k.await("the card to hang", func() bool { return k.card.Count(pivcard.Authenticate) > before })
	k.must0(wire.Request{Op: wire.Lock})
	began := time.Now()
	k.end()
	if took := time.Since(began); pace.Over(t, took, time.Second) {
		t.Errorf("the child took %v to end", took)
	}
	k.card.Mend()
	k.await("the card to forget", func() bool { return !k.card.Verified() })
}

func TestTouch(t *testing.T) {
	t.Parallel()
	k := unlocked(t, keys.PolicyAlways, pivcard.Options{TouchTimeout: 300 * time.Millisecond})
	k.fails(k.signing(), fault.TouchTimeout)
	k.card.TouchAfter(20 * time.Millisecond)
	k.signs()
	k.card.TouchAfter(0)
	<-k.card.Blinks()
	<-k.card.Blinks()
	id := k.send(k.signing())
	<-k.card.Blinks()
	k.must0(wire.Request{Op: wire.Lock}) // it does not wait for a finger
	if reply := k.answer(); reply.ID != id || reply.Error == nil || reply.Error.Kind != fault.TouchTimeout {
		t.Errorf("%+v", reply)
	}
	k.fails(k.signing(), fault.PINRequired)
}

func TestPCSCD(t *testing.T) {
	t.Parallel()
	k := unlocked(t, keys.PolicyNever, pivcard.Options{})
	r := k.signing()
	k.rig.StopPCSCD()
	k.fails(r, fault.DeviceAbsent)
	if e := k.fails(wire.Request{Op: wire.Readers}, fault.DeviceAbsent); e.Message != "pcscd is not running" || e.Next.Do != fault.StartPCSCD {
		t.Errorf("%+v", e)
	}
	k.fails(r, fault.DeviceAbsent)
	k.rig.Restart()
	if reply := k.do(r); reply.Error != nil && reply.Error.Kind != fault.PINRequired {
		t.Errorf("%+v", reply.Error)
	}
	k.must(k.unlocking(ownPIN))
	k.signs()
}

// TestNamedSCDaemon has gpg's card daemon hold the reader, as far as its name goes.
func TestNamedSCDaemon(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	d.rig.Hold(t, d.rig.ReaderOf(d.card), true)
	for _, op := range []wire.Op{wire.Identify, wire.Inspect} {
		if e := d.fails(d.on(op), fault.Busy); !strings.Contains(e.Message, "another program") {
			t.Errorf("%+v", e)
		}
	}
	named(t, "scdaemon")
	for _, op := range []wire.Op{wire.Identify, wire.Inspect} {
		if e := d.fails(d.on(op), fault.Busy); !strings.Contains(e.Message, "scdaemon") || e.Next.Do != fault.ShareCard {
			t.Errorf("%+v", e)
		}
	}
}

// named gives this process's main thread another name for a while.
func named(t *testing.T, name string) {
	t.Helper()
	old, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/proc/self/comm", []byte(name), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile("/proc/self/comm", bytes.TrimSpace(old), 0) })
}
