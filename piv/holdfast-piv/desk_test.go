package main

import (
	"bytes"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"holdfast/internal/keys"
	"holdfast/piv/wire"
	"holdfast/test/pivcard"
)

// The secrets that the owner has set on the cards of the tests.
var (
	ownPIN    = "314159"
	ownPUK    = "27182818"
	ownManage = bytes.Repeat([]byte{0xa5, 0x5a, 0x42}, 8)
)

// A desk is a rig with one card in it and a child.
type desk struct {
	*child
	rig  *pivcard.Rig
	card *pivcard.Card
}

// setUp starts a rig with one card that its owner has set up, and a child.
func setUp(t testing.TB, o pivcard.Options) *desk {
	t.Helper()
	if o.PIN == "" {
		o.PIN, o.PUK, o.Manage = ownPIN, ownPUK, ownManage
	}
	rig := pivcard.Start(t, 2)
	card := rig.NewCard(o)
	rig.Insert(card)
	return &desk{start(t, rig), rig, card}
}

// await waits until something is so.
func (d *desk) await(what string, so func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(testTimeout); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			d.t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// again kills the child, starts another, and waits until pcscd has closed the
// connection of the first one.
func (d *desk) again() {
	d.t.Helper()
	d.kill()
	d.child = start(d.t, d.rig)
	d.await("pcscd to close the killed child's connection", func() bool { return !d.inUse() })
}

// sent expects so many PINs to have been sent to the card so far.
func (d *desk) sent(want int) {
	d.t.Helper()
	if n := d.card.PINTries(); n != want {
		d.t.Errorf("the card was sent %d PINs, want %d", n, want)
	}
}

// on returns a request for the desk's card.
func (d *desk) on(op wire.Op) wire.Request {
	return wire.Request{Op: op, Reader: d.rig.ReaderOf(d.card), Serial: d.card.Serial}
}

// A made is a key on the card and how to use it.
type made struct {
	*desk
	slot       string
	public     []byte
	scheme     keys.Scheme
	pin, touch keys.Policy
	reply      *wire.Reply
}

// key makes a key.
func (d *desk) key(slot string, a keys.Algorithm, bits int, pin, touch keys.Policy) *made {
	d.t.Helper()
	r := d.on(wire.Generate)
	r.Slot, r.Algorithm, r.RSABits, r.PINPolicy, r.TouchPolicy, r.ManagementKey = slot, string(a), bits, pin, touch, ownManage
	r.Overwrite = !d.card.Firmware.AtLeast(pivcard.Firmware{5, 3, 0}) // or it could be full, unseen
	reply := d.must(r)
	scheme, err := keys.SchemeFor(a, keys.TLSClient)
	if err != nil {
		d.t.Fatal(err)
	}
	return &made{desk: d, slot: slot, public: reply.Slot.Public, scheme: scheme, pin: pin, touch: touch, reply: reply}
}

// on returns a request for the key.
func (m *made) on(op wire.Op) wire.Request {
	r := m.desk.on(op)
	r.Slot, r.Public, r.PINPolicy, r.TouchPolicy = m.slot, m.public, m.pin, m.touch
	return r
}

func (m *made) signing() wire.Request {
	r := m.on(wire.Sign)
	r.Scheme, r.Digest = m.scheme, m.scheme.Digest([]byte("message"))
	return r
}

func (m *made) unlocking(pin string) wire.Request {
	r := m.on(wire.Unlock)
	r.PIN, r.Until = []byte(pin), time.Now().Add(time.Minute)
	return r
}

// signs signs and verifies the signature.
func (m *made) signs() {
	m.t.Helper()
	r := m.signing()
	if err := m.verify(r, m.must(r)); err != nil {
		m.t.Error(err)
	}
}

func (m *made) verify(r wire.Request, reply *wire.Reply) error {
	public, err := x509.ParsePKIXPublicKey(m.public)
	if err != nil {
		return err
	}
	if len(reply.Signature) == 0 {
		return errors.New("no signature")
	}
	return keys.Verify(public, r.Scheme, r.Digest, reply.Signature)
}
