package main

import (
	"encoding/hex"
	"fmt"
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
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
	d.fails(once.signing(), fault.PINRequired)
	d.must(once.unlocking(ownPIN))
	once.signs()
	once.signs()
	if n := d.card.PINTries(); n != 1 {
		t.Errorf("the card was sent %d PINs, want 1", n)
	}
	d.must(wire.Request{Op: wire.Lock, Slot: "9a"})
	d.fails(once.signing(), fault.PINRequired)
}

// TestKeyOfYubicosTool signs with keys that another program has made.
func TestKeyOfYubicosTool(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	for slot, algorithm := range map[string]string{"9a": "ECCP256", "9d": "RSA2048", "85": "ECCP384"} {
		d.yubico("-k"+hex.EncodeToString(ownManage), "-a", "generate", "-s", slot, "-A", algorithm, "--pin-policy=once")
		r := d.on(wire.Slot)
		r.Slot = slot
		found := d.must(r).Slot
		scheme, err := keys.SchemeFor(found.Algorithm, keys.TLSClient)
		if err != nil || found.PINPolicy != keys.PolicyOnce {
			t.Fatalf("%+v, %v", found, err)
		}
		k := &made{desk: d, slot: slot, public: found.Public, scheme: scheme, pin: keys.PolicyOnce, touch: keys.PolicyNever}
		d.must(k.unlocking(ownPIN))
		k.signs()
		d.must(wire.Request{Op: wire.Lock})
		d.released()
	}
}

func TestSignRefuses(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	k := d.key("9a", keys.ES256, 0, keys.PolicyNever, keys.PolicyNever)
	d.card.Forget()
	for name, change := range map[string]func(*wire.Request){
		"no digest":      func(r *wire.Request) { r.Digest = nil },
		"short digest":   func(r *wire.Request) { r.Digest = r.Digest[:31] },
		"long digest":    func(r *wire.Request) { r.Digest = append(r.Digest, 0) },
		"scheme":         func(r *wire.Request) { r.Scheme = keys.RSAPSSSHA256 },
		"no scheme":      func(r *wire.Request) { r.Scheme = "" },
		"other curve":    func(r *wire.Request) { r.Scheme, r.Digest = keys.ECDSAP384SHA384, make([]byte, 48) },
		"no key":         func(r *wire.Request) { r.Public = nil },
		"half a key":     func(r *wire.Request) { r.Public = r.Public[:40] },
		"slot":           func(r *wire.Request) { r.Slot = "9b" },
		"PIN policy":     func(r *wire.Request) { r.PINPolicy = "sometimes" },
		"no PIN policy":  func(r *wire.Request) { r.PINPolicy = "" },
		"unlock no PIN":  func(r *wire.Request) { r.Op = wire.Unlock },
		"unlock, 9b":     func(r *wire.Request) { r.Op, r.Slot, r.PIN = wire.Unlock, "9b", []byte(ownPIN) },
		"attestation":    func(r *wire.Request) { r.Op, r.Slot = wire.Slot, "f9" },
		"no certificate": func(r *wire.Request) { r.Op = wire.Certificate },
	} {
		r := k.signing()
		change(&r)
		if e := d.do(r).Error; e == nil || e.Kind != fault.BadRequest || !e.Unsent {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if n := d.card.Count(pivcard.Authenticate); n != 0 || d.card.PINTries() != 0 {
		t.Errorf("%d signatures were asked for, %d PINs sent", n, d.card.PINTries())
	}
}
