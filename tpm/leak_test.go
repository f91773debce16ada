package tpm

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/swtpm"
)

// A deed is one operation of the fail-at-n loop. It may fail.
type deed struct {
	name string
	do   func(context.Context, *TPM, *stock) error
}

// A stock holds the keys that deeds need and make.
type stock struct {
	plain, pin, doomed, made keys.Material
	sealed                   json.RawMessage
}

var testPIN = []byte("1234")

func pinned(persistent bool) keys.Template {
	return keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, PIN: testPIN, Persistent: persistent}
}

func deeds() []deed {
	asked := func(t keys.Template) func(context.Context, *TPM, *stock) error {
		return func(ctx context.Context, b *TPM, s *stock) (err error) {
			if s.made, err = b.Create(ctx, t); err != nil {
				return err
			}
			return b.Persist(ctx, s.made)
		}
	}
	persistent := keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, Persistent: true}
	return []deed{
		{"create", asked(es256)},
		{"create with PIN", asked(pinned(false))},
		{"create persistent", asked(persistent)},
		{"create persistent with PIN", asked(pinned(true))},
		{"sign", func(ctx context.Context, b *TPM, s *stock) error { return signs(ctx, b, s.plain, p256) }},
		{"check", func(ctx context.Context, b *TPM, s *stock) error { return b.Check(ctx, s.plain) }},
		{"unlock and sign", func(ctx context.Context, b *TPM, s *stock) error {
			if err := b.Unlock(ctx, s.pin, testPIN, time.Now().Add(time.Minute)); err != nil {
				return err
			}
			return signs(ctx, b, s.pin, p256)
		}},
		{"seal", func(ctx context.Context, b *TPM, s *stock) error {
			sealed, err := b.Seal(ctx, aSecret)
			if err == nil {
				s.sealed = sealed
			}
			return err
		}},
		{"unseal", func(ctx context.Context, b *TPM, s *stock) error { _, err := b.Unseal(ctx, s.sealed); return err }},
		{"delete", func(ctx context.Context, b *TPM, s *stock) error { return b.Delete(ctx, s.doomed) }},
	}
}

// TestLostReplies cuts the connection at each command of each operation, once
// before the TPM sees it and once after, and wants the next operations to work
// and nothing to be left in the device.
func TestLostReplies(t *testing.T) {
	for _, managed := range []bool{false, true} {
		for _, d := range deeds() {
			for _, fate := range []swtpm.Fate{swtpm.DropBefore, swtpm.DropAfter} {
				t.Run(fmt.Sprintf("%s, managed %v, fate %d", d.name, managed, fate), func(t *testing.T) {
					t.Parallel()
					device := swtpm.Start(t)
					for n := 0; loseReply(t, device, managed, d, n, fate); n++ {
					}
				})
			}
		}
	}
}

// loseReply runs d with the reply number n lost and reports whether there was
// such a reply.
func loseReply(t *testing.T, device *swtpm.TPM, managed bool, d deed, n int, fate swtpm.Fate) bool {
	t.Helper()
	proxy := swtpm.NewProxy(t, device, swtpm.Options{ResourceManager: managed})
	s := &stock{}
	maker := open(t, proxied(proxy, managed))
	s.plain, s.pin = create(t, maker, es256), create(t, maker, pinned(false))
	persistent := es256
	persistent.Persistent = true
	s.doomed, s.sealed = create(t, maker, persistent), seal(t, maker)
	maker.Close()

	b := open(t, proxied(proxy, managed))
	proxy.SetScript(swtpm.At(n, fate))
	err := d.do(soon(t), b, s)
	reached := proxy.Seen() > n
	proxy.SetScript(nil)
	if err != nil && fault.KindOf(err) == fault.Internal {
		t.Errorf("reply %d: got %v, want a named fault", n, err)
	}
	mustSign(t, b, s.plain, p256)
	unlock(t, b, s.pin, testPIN)
	mustSign(t, b, s.pin, p256)
	mustUnseal(t, b, s.sealed)
	if err == nil && s.made.Public != nil && !s.made.PIN {
		mustSign(t, b, s.made, p256)
	}
	for _, m := range []keys.Material{s.doomed, s.made} {
		if m.Public == nil {
			continue
		}
		if err := b.Delete(soon(t), m); err != nil {
			t.Errorf("reply %d: Delete: %v", n, err)
		}
	}
	b.Close()
	proxy.Close()
	if left := device.Handles(); len(left) != 0 {
		t.Fatalf("reply %d: the device still holds %x (the operation said: %v)", n, left, err)
	}
	return reached
}

// TestRotation uses more keys and more PIN sessions than the device has slots.
func TestRotation(t *testing.T) {
	b, proxy, device := behind(t, false)
	var plain, pins []keys.Material
	for range 5 {
		plain = append(plain, create(t, b, es256))
		m := create(t, b, pinned(false))
		unlock(t, b, m, testPIN)
		pins = append(pins, m)
	}
	for range 2 {
		for i := range plain {
			mustSign(t, b, plain[i], p256)
			mustSign(t, b, pins[i], p256)
		}
	}
	b.Close()
	proxy.Close()
	if left := device.Handles(); len(left) != 0 {
		t.Errorf("the device still holds %x", left)
	}
}

// TestDescriptorsAreBounded uses more keys than descriptors are kept for.
func TestDescriptorsAreBounded(t *testing.T) {
	b, _, _ := behind(t, true)
	var list []keys.Material
	for range maxLoaded + 3 {
		list = append(list, create(t, b, es256))
	}
	if got := len(b.loaded); got != maxLoaded {
		t.Errorf("got %d loaded keys, want %d", got, maxLoaded)
	}
	mustSign(t, b, list[0], p256)
	if _, kept := b.loaded[string(list[3].Device)]; kept {
		t.Error("the key that was used least recently is still loaded")
	}
}

// TestLeftoversOfAKilledAgent fills the slots as an agent does that is killed.
func TestLeftoversOfAKilledAgent(t *testing.T) {
	device := swtpm.Start(t)
	proxy := swtpm.NewProxy(t, device, swtpm.Options{})
	b := open(t, proxied(proxy, false))
	m := create(t, b, es256)
	dead, err := proxy.Dial()
	if err != nil {
		t.Fatal(err)
	}
	for {
		reply, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}.Execute(dead)
		if err != nil {
			break // full
		}
		_ = reply
	}
	dead.Close()
	again := open(t, proxied(proxy, false))
	mustSign(t, again, m, p256)
}
