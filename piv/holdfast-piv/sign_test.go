package main

import (
	"fmt"
	"testing"

	"holdfast/agent/keys"
	"holdfast/piv/wire"
	"holdfast/test/pivcard"
)

func TestAlgorithms(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{Firmware: pivcard.Firmware{5, 7, 1}})
	for i, a := range []struct {
		algorithm keys.Algorithm
		bits      int
	}{{keys.ES256, 0}, {keys.ES384, 0}, {keys.RS256, 2048}, {keys.RS256, 3072}, {keys.RS256, 4096}} {
		k := d.key(fmt.Sprintf("%x", 0x82+i), a.algorithm, a.bits, keys.PolicyNever, keys.PolicyNever)
		k.signs()
		if got := k.reply.Slot; got.Algorithm != a.algorithm || got.RSABits != a.bits {
			t.Errorf("the slot says %s %d, want %s %d", got.Algorithm, got.RSABits, a.algorithm, a.bits)
		}
		if a.algorithm == keys.RS256 {
			k.scheme = keys.RSAPKCS1SHA256
			k.signs()
		}
	}
	if n := d.card.PINTries(); n != 0 {
		t.Errorf("the card was sent %d PINs, want none", n)
	}
}

func TestUnlock(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	once := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
	d.fails(once.signing(), keys.PINRequired)
	d.must(once.unlocking(ownPIN))
	once.signs()
	once.signs()
	if n := d.card.PINTries(); n != 1 {
		t.Errorf("the card was sent %d PINs, want 1", n)
	}
	d.must(wire.Request{Op: wire.Lock, Slot: "9a"})
	d.fails(once.signing(), keys.PINRequired)
}
