package tpm

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/pace"
)

// TestSessionRepliesAreAuthenticated: with a PIN session a changed reply is an
// error of its own and never a signature, and the session ends.
func TestSessionRepliesAreAuthenticated(t *testing.T) {
	for name, change := range map[string]func([]byte){
		"signature":  func(reply []byte) { reply[25] ^= 1 },
		"nonce":      func(reply []byte) { reply[len(reply)-36] ^= 1 },
		"attributes": func(reply []byte) { reply[len(reply)-35] ^= 0x80 },
		"HMAC":       func(reply []byte) { reply[len(reply)-1] ^= 1 },
	} {
		b, proxy, _ := behind(t, false)
		m := create(t, b, pinned(false))
		unlock(t, b, m, testPIN)
		proxy.SetMutation(func(cc tpm2.TPMCC, reply []byte) []byte {
			if cc == tpm2.TPMCCSign && len(reply) > headerSize {
				change(reply)
			}
			return reply
		})
		signature, err := b.Sign(soon(t), m, p256, make([]byte, 32))
		if err == nil {
			t.Errorf("%s changed: got signature %x", name, signature)
		}
		proxy.SetMutation(nil)
		wantKind(t, signs(soon(t), b, m, p256), fault.PINRequired)
		unlock(t, b, m, testPIN)
		mustSign(t, b, m, p256)
	}
}

// TestUntilIsCheckedAtUse: the clock decides, whether or not the timer has run.
func TestUntilIsCheckedAtUse(t *testing.T) {
	b, _, _ := behind(t, false)
	m := create(t, b, pinned(false))
	unlock(t, b, m, testPIN)
	b.sessionOf(string(m.Device)).until = time.Now()
	wantKind(t, signs(soon(t), b, m, p256), fault.PINRequired)
}

// TestLockDoesNotWait locks while the device does not answer, with a session
// that has to be flushed.
func TestLockDoesNotWait(t *testing.T) {
	b, _, device := behind(t, true)
	plain, pin := create(t, b, es256), create(t, b, pinned(false))
	unlock(t, b, pin, testPIN)
	device.Stop()
	wantKind(t, signs(within(t, 100*time.Millisecond), b, plain, p256), fault.Deadline)
	start := time.Now()
	b.Lock(nil)
	if took := time.Since(start); pace.Over(t, took, time.Second) {
		t.Errorf("Lock took %v on a device that does not answer", took)
	}
	device.Cont()
	mustSign(t, b, plain, p256)
	wantKind(t, signs(soon(t), b, pin, p256), fault.PINRequired)
}

// TestImportedIsNotForgotten: a record that leaves the mark out of a key that
// can leave the device is refused.
func TestImportedIsNotForgotten(t *testing.T) {
	area := goodArea(t)
	area.ObjectAttributes.FixedTPM, area.ObjectAttributes.FixedParent = false, false
	k := &key{area: &area, spki: []byte("public")}
	m := keys.Material{Backend: Backend, Public: k.spki, Imported: true}
	if err := k.matches(m); err != nil {
		t.Fatal(err)
	}
	m.Imported = false
	wantKind(t, k.matches(m), fault.KeyMismatch)
}

// TestSessionKey holds the session's derivation and HMAC to go-tpm's, with the
// same nonces and salt.
func TestSessionKey(t *testing.T) {
	s := &session{nonceTPM: bytes.Repeat([]byte{2}, 32), attrs: continueSession}
	copy(s.nonceCaller[:], bytes.Repeat([]byte{1}, nonceSize))
	s.derive([]byte("PIN"), []byte("salt"))
	want := tpm2.KDFa(5, []byte("PINsalt"), "ATH", s.nonceTPM, s.nonceCaller[:], 256) // crypto.SHA256 is 5
	if !bytes.Equal(s.key, want) {
		t.Errorf("got %x, want %x", s.key, want)
	}
	hash := commandHash(tpm2.TPMCCSign, []byte("parameters"), []byte("name"))
	mac := s.commandMAC(hash)
	s.wipe()
	if s.key != nil || bytes.Equal(mac, s.commandMAC(hash)) {
		t.Error("a wiped session still authorises")
	}
}

func TestTrimZeros(t *testing.T) {
	for in, want := range map[string]string{"": "", "\x00": "", "a\x00": "a", "a\x00b\x00\x00": "a\x00b", "\x00a": "\x00a"} {
		if got := string(trimZeros([]byte(in))); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
