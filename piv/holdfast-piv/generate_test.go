package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
	"holdfast/test/pivcard"
)

func TestGenerate(t *testing.T) {
	for _, f := range []pivcard.Firmware{{4, 3, 5}, {5, 4, 3}} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			d := setUp(t, pivcard.Options{Firmware: f})
			k := d.key("9d", keys.ES384, 0, keys.PolicyAlways, keys.PolicyCached)
			got := k.reply.Slot
			if got.Slot != "9d" || got.Algorithm != keys.ES384 || got.PINPolicy != keys.PolicyAlways || got.TouchPolicy != keys.PolicyCached ||
				got.Generated == nil || !*got.Generated || len(got.Public) == 0 {
				t.Errorf("the slot is %+v", got)
			}
			slot := d.on(wire.Slot)
			slot.Slot, slot.Attest = "9d", true
			seen := d.must(slot)
			if !bytes.Equal(seen.Slot.Public, got.Public) || seen.Slot.PINPolicy != got.PINPolicy || len(seen.Attestation) != 2 {
				t.Errorf("a look at the slot gives %+v and %d certificates", seen.Slot, len(seen.Attestation))
			}
			for _, chain := range [][][]byte{k.reply.Attestation, seen.Attestation} {
				d.attests(chain, got.Public)
			}
		})
	}
}

// attests expects a chain that ends at the rig's root and is about the key.
func (d *desk) attests(chain [][]byte, public []byte) {
	d.t.Helper()
	if len(chain) != 2 {
		d.t.Fatalf("%d certificates", len(chain))
	}
	of, err := x509.ParseCertificate(chain[0])
	if err != nil {
		d.t.Fatal(err)
	}
	by, err := x509.ParseCertificate(chain[1])
	if err != nil {
		d.t.Fatal(err)
	}
	block, _ := pem.Decode(d.rig.Maker.PEM())
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		d.t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(of.PublicKey)
	if err != nil || !bytes.Equal(der, public) {
		d.t.Errorf("the attestation is about another key (%v)", err)
	}
	if err := of.CheckSignatureFrom(by); err != nil {
		d.t.Error(err)
	}
	if err := by.CheckSignatureFrom(root); err != nil {
		d.t.Error(err)
	}
}

func TestWithoutAttestation(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	d.card.Order(pivcard.NoAttestation())
	if k := d.key("9a", keys.ES256, 0, keys.PolicyNever, keys.PolicyNever); len(k.reply.Attestation) != 0 {
		t.Errorf("%d certificates", len(k.reply.Attestation))
	}
}

// TestLyingCard has a card attest to another key than it gives out.
func TestLyingCard(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	d.card.Forge(func(s *pivcard.Statement) { s.Public = other.Public() })
	r := d.generating("9a")
	r.PIN, r.ManagementKey = nil, ownManage
	d.fails(r, fault.KeyMismatch)
}

// TestFactoryRefused has one secret at a time be the factory's.
func TestFactoryRefused(t *testing.T) {
	for name, o := range map[string]pivcard.Options{
		"PIN":                    {PUK: ownPUK, Manage: ownManage},
		"PUK":                    {PIN: ownPIN, Manage: ownManage},
		"management key":         {PIN: ownPIN, PUK: ownPUK},
		"PIN, unknown":           {PUK: ownPUK, Manage: ownManage, Firmware: pivcard.Firmware{5, 2, 4}},
		"management key, unkown": {PIN: ownPIN, PUK: ownPUK, Firmware: pivcard.Firmware{5, 2, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig := pivcard.Start(t, 2)
			card := rig.NewCard(o)
			rig.Insert(card)
			d := &desk{start(t, rig), rig, card}
			r := d.generating("9a")
			r.ManagementKey = o.Manage
			if o.Manage == nil {
				r.ManagementKey = pivcard.DefaultManagementKey()
			}
			if o.PIN == "" {
				r.PIN = []byte("123456")
			}
			e := d.fails(r, fault.BadRequest)
			if secret, _, _ := strings.Cut(name, ","); !strings.Contains(e.Message, secret) || e.Next.Do != fault.SetUpCard {
				t.Errorf("%+v", e)
			}
			if n := card.Count(pivcard.Generate); n != 0 || card.PINTries() != 0 {
				t.Errorf("%d keys were made, %d PINs sent", n, card.PINTries())
			}
		})
	}
}

func TestGenerateRefuses(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	for name, change := range map[string]func(*wire.Request){
		"slot":       func(r *wire.Request) { r.Slot = "f9" },
		"algorithm":  func(r *wire.Request) { r.Algorithm = "EdDSA" },
		"bits":       func(r *wire.Request) { r.Algorithm, r.RSABits = "RS256", 1024 },
		"PIN policy": func(r *wire.Request) { r.PINPolicy = "" },
		"touch":      func(r *wire.Request) { r.TouchPolicy = "often" },
		"manage":     func(r *wire.Request) { r.ManagementKey = bytes.Repeat([]byte{1}, 24) },
		"manage, 16": func(r *wire.Request) { r.ManagementKey = bytes.Repeat([]byte{1}, 16) },
		"not kept":   func(r *wire.Request) { r.ManagementKey = nil },
	} {
		r := d.generating("9a")
		r.ManagementKey = ownManage
		change(&r)
		if e := d.do(r).Error; e == nil || e.Kind != fault.BadRequest {
			t.Errorf("%s: %+v", name, e)
		}
	}
	r := d.generating("9a")
	r.PIN = nil
	d.fails(r, fault.PINRequired)
	r = d.generating("9a")
	r.Algorithm, r.RSABits = "RS256", 4096
	d.fails(r, fault.Unsupported)
	if n := d.card.Count(pivcard.Generate); n != 0 {
		t.Errorf("%d keys were made", n)
	}
}

// TestROCA has a firmware whose RSA keys can be broken.
func TestROCA(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{Firmware: pivcard.Firmware{4, 3, 4}})
	r := d.generating("9a")
	r.Algorithm, r.ManagementKey = "RS256", ownManage
	if e := d.fails(r, fault.Unsupported); !strings.Contains(e.Message, "ROCA") {
		t.Errorf("%+v", e)
	}
}

// certificateFor makes a certificate for a key, signed by another.
func certificateFor(t *testing.T, public []byte) []byte {
	t.Helper()
	key, err := x509.ParsePKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "alice"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key, issuer)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// TestGenerateRefused: a card that refuses a slot says so, works on, and what became of the
// key in the slot is known.
func TestGenerateRefused(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	k := d.key("9a", keys.ES256, 0, keys.PolicyNever, keys.PolicyNever)
	r := k.on(wire.Generate)
	r.Algorithm, r.Overwrite, r.ManagementKey = "ES256", true, ownManage
	for status, want := range map[uint16]string{0x6a80: "rejects the data", 0x6a82: "no such slot", 0x6a86: "does not know this slot", 0x6985: "present state", 0x6a99: "6a99"} {
		d.card.Order(pivcard.Status(status).At(pivcard.Generate))
		if e := d.fails(r, fault.Unsupported); !strings.Contains(e.Message, want) || e.Hint == "" || strings.Contains(e.Message, "gone") {
			t.Errorf("%04x: %+v", status, e)
		}
		k.signs()
	}
	d.card.Order(pivcard.StatusAfter(0x6581).At(pivcard.Generate))
	if e := d.fails(r, fault.DeviceFailed); !strings.Contains(e.Message, "a new key is in slot 9a") || e.Next.Do != fault.Adopt {
		t.Errorf("the key was made: %+v", e)
	}
	d.card.Order(pivcard.Erased(0x9a).At(pivcard.Generate))
	if e := d.fails(r, fault.DeviceFailed); !strings.Contains(e.Message, "the key that was in slot 9a of card 10000001 is gone") {
		t.Errorf("the key is gone: %+v", e)
	}
}

// TestMalformedAttestation: a statement that is no certificate proves nothing, and is no
// failure of the card.
func TestMalformedAttestation(t *testing.T) {
	for name, flaw := range map[string]pivcard.Fault{"no certificate": pivcard.Answer([]byte{0x30, 0x03, 1, 2, 3, 0x90, 0}), "empty": pivcard.Answer([]byte{0x90, 0})} {
		for _, f := range []pivcard.Firmware{{5, 2, 4}, {5, 4, 3}} {
			t.Run(name+" "+f.String(), func(t *testing.T) {
				t.Parallel()
				d := setUp(t, pivcard.Options{Firmware: f})
				d.card.Order(flaw.At(pivcard.Attest).Lasting())
				k := d.key("9a", keys.ES256, 0, keys.PolicyNever, keys.PolicyNever)
				if len(k.reply.Attestation) != 0 {
					t.Errorf("%d certificates attest the key", len(k.reply.Attestation))
				}
				k.signs()
			})
		}
	}
}

func TestCertificate(t *testing.T) {
	t.Parallel()
	d := fresh(t, pivcard.Firmware{})
	d.must(d.settingUp())
	d.must(d.generating("9a"))
	slot := d.on(wire.Slot)
	slot.Slot = "9a"
	public := d.must(slot).Slot.Public
	k := &made{desk: d, slot: "9a", public: public, scheme: keys.ECDSAP256SHA256, pin: keys.PolicyOnce, touch: keys.PolicyNever}
	r := k.on(wire.Certificate)
	r.Certificate = certificateFor(t, public)
	d.fails(r, fault.PINRequired)
	d.must(k.unlocking(ownPIN))
	d.must(r) // the PIN is there
	if got := d.must(slot).Slot.Certificate; !bytes.Equal(got, r.Certificate) {
		t.Errorf("the slot holds %d bytes", len(got))
	}
	d.released()
	if text := d.yubico("-a", "read-certificate", "-s", "9a", "-K", "DER"); !bytes.Equal(text, r.Certificate) {
		t.Errorf("Yubico's tool reads %d bytes", len(text))
	}
	d.must(wire.Request{Op: wire.Lock})
	r.PIN, r.Certificate = []byte(ownPIN), certificateFor(t, public)
	d.must(r)
	if got := d.must(slot).Slot.Certificate; !bytes.Equal(got, r.Certificate) {
		t.Errorf("the slot holds %d bytes", len(got))
	}
	d.card.Order(pivcard.Status(0x6a84).At(pivcard.PutData))
	r.PIN = []byte(ownPIN)
	if e := d.fails(r, fault.Unsupported); !strings.Contains(e.Message, "room") {
		t.Errorf("%+v", e)
	}
	r.PIN, r.Certificate = []byte(ownPIN), r.Certificate[:100]
	d.fails(r, fault.BadRequest)
	r.PIN, r.Certificate = []byte(ownPIN), bytes.Repeat([]byte{0x30}, 9000)
	d.fails(r, fault.BadRequest)
	over := d.generating("9a")
	over.Overwrite = true
	other := d.must(over)
	if other.Slot.Certificate != nil || d.card.Object(0x5fc105) != nil {
		t.Error("the certificate of the key that is no more is still there")
	}
	r.PIN, r.Public, r.Certificate = []byte(ownPIN), other.Slot.Public, certificateFor(t, public)
	d.fails(r, fault.BadRequest) // it is the other key's
}

func TestInspect(t *testing.T) {
	for _, f := range []pivcard.Firmware{{4, 3, 5}, {5, 2, 4}, {5, 3, 1}, {5, 4, 3}} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			d := fresh(t, f)
			before := d.must(d.on(wire.Inspect)).Card
			told := f.AtLeast(pivcard.Firmware{5, 3, 0})
			if (before.DefaultPIN != nil) != told || (before.PUKTries != nil) != told || told && (!*before.DefaultPIN || !*before.DefaultPUK || !*before.DefaultManagement) {
				t.Errorf("from the factory: %+v", before)
			}
			if before.PINTries == nil || *before.PINTries != 3 || before.ProtectedManagement || len(before.Slots) != 0 {
				t.Errorf("from the factory: %+v", before)
			}
			d.must(d.settingUp())
			d.must(d.generating("9a"))
			d.must(d.generating("95"))
			d.end()
			d.child = start(t, d.rig)
			after := d.must(d.on(wire.Inspect)).Card
			if after.Serial != d.card.Serial || after.Firmware != f.String() || after.State != keys.StateReady || !after.ProtectedManagement ||
				told && (*after.DefaultPIN || *after.DefaultPUK || *after.DefaultManagement) {
				t.Errorf("set up: %+v", after)
			}
			if len(after.Slots) != 2 || after.Slots[0].Slot != "9a" || after.Slots[1].Slot != "95" || after.Slots[1].Algorithm != keys.ES256 {
				t.Errorf("slots %+v", after.Slots)
			}
			d.card.SetPINLeft(2)
			if again := d.must(d.on(wire.Inspect)).Card; again.PINTries == nil || *again.PINTries != 2 {
				t.Errorf("%v tries, want 2", again.PINTries)
			}
		})
	}
}
