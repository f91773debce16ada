package tpm

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/swtpm"
)

// unlockErr tries a PIN.
func unlockErr(t *testing.T, b *TPM, m keys.Material, pin string) error {
	return b.Unlock(soon(t), m, []byte(pin), time.Now().Add(time.Minute))
}

// TestPINNeverOnTheBus listens while a key is made, refused, unlocked and used.
func TestPINNeverOnTheBus(t *testing.T) {
	pin := []byte("a PIN to look for")
	device := swtpm.Start(t)
	proxy := swtpm.NewProxy(t, device, swtpm.Options{Record: true})
	b := open(t, proxied(proxy, false))
	asked := pinned(true)
	asked.PIN = pin
	m := create(t, b, asked)
	wantKind(t, unlockErr(t, b, m, "wrong PIN to look for"), fault.PINRequired)
	unlock(t, b, m, pin)
	mustSign(t, b, m, p256)
	seen := proxy.Recorded()
	for _, secret := range [][]byte{pin, []byte("wrong PIN to look for")} {
		if bytes.Contains(seen, secret) {
			t.Errorf("%q crossed the bus in clear", secret)
		}
	}
	if !bytes.Contains(seen, m.Public[len(m.Public)-32:]) {
		t.Error("the tape does not even hold the public key")
	}
	if bytes.Contains(m.Device, pin) {
		t.Error("the PIN is in the key's material")
	}
}

// TestPINIsNotKept looks for the PIN in what Unlock leaves behind, and signs
// after the caller's copy is gone.
func TestPINIsNotKept(t *testing.T) {
	b, _, _ := behind(t, false)
	m := create(t, b, pinned(false))
	pin := bytes.Clone(testPIN)
	if err := b.Unlock(soon(t), m, pin, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	clear(pin)
	s := b.sessionOf(string(m.Device))
	fields := reflect.ValueOf(*s)
	for i := range fields.NumField() {
		if f := fields.Field(i); f.Kind() == reflect.Slice && bytes.Contains(f.Bytes(), testPIN) {
			t.Errorf("the session's %s holds the PIN", fields.Type().Field(i).Name)
		}
	}
	mustSign(t, b, m, p256)
}

func TestLockEndsTheSession(t *testing.T) {
	b, proxy, device := behind(t, false)
	m, other := create(t, b, pinned(false)), create(t, b, pinned(false))
	unlock(t, b, m, testPIN)
	unlock(t, b, other, testPIN)
	key := b.sessionOf(string(m.Device)).key
	b.Lock(&m)
	if !bytes.Equal(key, make([]byte, len(key))) {
		t.Error("the session key is still in memory")
	}
	wantKind(t, signs(soon(t), b, m, p256), fault.PINRequired)
	mustSign(t, b, other, p256)
	b.Lock(nil)
	wantKind(t, signs(soon(t), b, other, p256), fault.PINRequired)
	proxy.Close()
	for _, h := range device.Handles() {
		if h>>24 == 2 || h>>24 == 3 {
			t.Errorf("session %x is still in the device", h)
		}
	}
}

func TestUnlockEnds(t *testing.T) {
	b, _, _ := behind(t, false)
	m := create(t, b, pinned(false))
	if err := b.Unlock(soon(t), m, testPIN, time.Now().Add(200*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for stop := time.Now().Add(30 * time.Second); b.sessionOf(string(m.Device)) != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(stop) {
			t.Fatal("the session outlives its time")
		}
	}
	wantKind(t, signs(soon(t), b, m, p256), fault.PINRequired)
	unlock(t, b, m, testPIN)
	mustSign(t, b, m, p256)
}

// TestWrongPINs holds the promise that the agent never comes near the lockout.
func TestWrongPINs(t *testing.T) {
	b, proxy, device := behind(t, false)
	m := create(t, b, pinned(false))
	plain := create(t, b, es256)
	var kinds []fault.Kind
	for range 10 {
		kinds = append(kinds, fault.KindOf(unlockErr(t, b, m, "wrong")))
	}
	want := []fault.Kind{fault.PINRequired, fault.PINRequired}
	for len(want) < 10 {
		want = append(want, fault.PINBlocked)
	}
	if !reflect.DeepEqual(kinds, want) {
		t.Errorf("got %v, want %v", kinds, want)
	}
	wantKind(t, unlockErr(t, b, m, string(testPIN)), fault.PINBlocked)
	mustSign(t, b, plain, p256)
	s := wantState(t, b, keys.StateReady)
	if s.TriesLeft == nil || *s.TriesLeft != 1 {
		t.Errorf("got tries left %v, want 1", s.TriesLeft)
	}
	proxy.Close()
	if got := device.Property(tpm2.TPMPTLockoutCounter); got != 2 {
		t.Errorf("got %d failed tries on the device, want 2", got)
	}
}

func TestReserve(t *testing.T) {
	for _, c := range []struct{ max, failed, want int }{
		{3, 0, 2}, {3, 1, 1}, {3, 2, 0}, {32, 0, 29}, {32, 28, 1}, {32, 29, 0}, {5, 0, 2}, {1, 0, 0}, {0, 0, 0}, {10, 40, 0},
	} {
		tries := 0
		for o := (lockout{max: c.max, failed: c.failed}); o.left()-1 >= o.reserve(); o.failed++ {
			tries++
		}
		if tries != c.want {
			t.Errorf("limit %d, %d failed: got %d tries, want %d", c.max, c.failed, tries, c.want)
		}
	}
}

// burn spends all tries of the device, as another program does.
func burn(t *testing.T, proxy *swtpm.Proxy) {
	t.Helper()
	c, err := proxy.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	primary, err := tpm2.CreatePrimary{
		PrimaryHandle: tpm2.TPMRHOwner,
		InSensitive:   tpm2.TPM2BSensitiveCreate{Sensitive: &tpm2.TPMSSensitiveCreate{UserAuth: tpm2.TPM2BAuth{Buffer: []byte("x")}}},
		InPublic:      tpm2.New2B(signingPrimary()),
	}.Execute(c)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		_, err = tpm2.Sign{
			KeyHandle:  tpm2.AuthHandle{Handle: primary.ObjectHandle, Name: primary.Name, Auth: tpm2.PasswordAuth([]byte("y"))},
			Digest:     tpm2.TPM2BDigest{Buffer: make([]byte, 32)},
			Validation: tpm2.TPMTTKHashCheck{Tag: tpm2.TPMSTHashCheck, Hierarchy: tpm2.TPMRHNull},
		}.Execute(c)
		if codeOf(err) == tpm2.TPMRCLockout {
			_, err = tpm2.FlushContext{FlushHandle: primary.ObjectHandle}.Execute(c)
			if err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("the device does not lock: %v", err)
}

func signingPrimary() tpm2.TPMTPublic {
	area, err := template(pinned(false))
	if err != nil {
		panic(err)
	}
	return area
}

func TestLockedDevice(t *testing.T) {
	device := swtpm.Start(t)
	proxy := swtpm.NewProxy(t, device, swtpm.Options{})
	b := open(t, proxied(proxy, false))
	plain, pin, open := create(t, b, es256), create(t, b, pinned(false)), create(t, b, pinned(false))
	unlock(t, b, open, testPIN)
	burn(t, proxy)
	wantKind(t, signs(soon(t), b, open, p256), fault.DeviceLocked)
	err := unlockErr(t, b, pin, string(testPIN))
	wantKind(t, err, fault.DeviceLocked)
	if e, _ := fault.AsError(err); e.RetryAfter <= 0 || e.RetryAfter > 1000*time.Second {
		t.Errorf("got retry after %v, want swtpm's 1000 s at most", e.RetryAfter)
	}
	mustSign(t, b, plain, p256)
	s := wantState(t, b, keys.StateLocked)
	if s.LockedUntil == nil || time.Until(*s.LockedUntil) > 1001*time.Second {
		t.Errorf("got locked until %v, want within 1000 s", s.LockedUntil)
	}
	unlockDevice(t, proxy)
	wantState(t, b, keys.StateReady)
	unlock(t, b, pin, testPIN)
	mustSign(t, b, pin, p256)
}

// unlockDevice sends TPM2_DictionaryAttackLockReset, which go-tpm lacks.
func unlockDevice(t *testing.T, proxy *swtpm.Proxy) {
	t.Helper()
	c, err := proxy.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	reply, err := c.Send([]byte{0x80, 2, 0, 0, 0, 27, 0, 0, 1, 0x39, 0x40, 0, 0, 0x0a, 0, 0, 0, 9, 0x40, 0, 0, 9, 0, 0, 0, 0, 0})
	if err != nil || replyCode(reply) != 0 {
		t.Fatalf("reset of the lockout: %x, %v", reply, err)
	}
}

// TestPINIsNotTriedTwice loses the reply to the proof of a wrong PIN.
func TestPINIsNotTriedTwice(t *testing.T) {
	b, proxy, device := behind(t, false)
	m := create(t, b, pinned(false))
	unlock(t, b, m, testPIN) // a TPM answers TPM_RC_RETRY to the first use of such a key
	b.Lock(nil)
	proxy.SetScript(swtpm.First(1, tpm2.TPMCCSign, swtpm.DropAfter))
	if err := unlockErr(t, b, m, "wrong"); err == nil {
		t.Error("a lost reply unlocked the key")
	}
	proxy.Close()
	if got := device.Property(tpm2.TPMPTLockoutCounter); got != 1 {
		t.Errorf("got %d failed tries on the device, want 1", got)
	}
}

// TestPINWithSwappedParent: an interposer that answers with a parent of its own
// learns nothing, because the parent's name was pinned.
func TestPINWithSwappedParent(t *testing.T) {
	device, evil := swtpm.Start(t), swtpm.Start(t)
	proxy := swtpm.NewProxy(t, device, swtpm.Options{})
	b := open(t, proxied(proxy, false))
	m := create(t, b, pinned(false))
	b.Close()
	c, err := evil.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	forged, err := c.Send(createPrimaryBytes(t, standardParent()))
	if err != nil {
		t.Fatal(err)
	}
	proxy.SetMutation(func(cc tpm2.TPMCC, reply []byte) []byte {
		if cc == tpm2.TPMCCCreatePrimary {
			return forged
		}
		return reply
	})
	proxy.SetScript(nil)
	again := open(t, proxied(proxy, false))
	wantKind(t, unlockErr(t, again, m, string(testPIN)), fault.IdentityChanged)
}

// createPrimaryBytes is the command that makes a parent.
func createPrimaryBytes(t *testing.T, ref parentRef) []byte {
	t.Helper()
	var tape recorder
	_, _ = tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.BytesAs2B[tpm2.TPMTPublic](ref.template)}.Execute(&tape)
	return tape.command
}
