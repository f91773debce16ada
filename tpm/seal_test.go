package tpm

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	keyfile "github.com/foxboron/go-tpm-keyfiles"
	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/swtpm"
)

// aSecret is one to look for.
var aSecret = []byte("a secret to look for on the bus, long enough to be found")

// seal seals aSecret or ends the test.
func seal(t *testing.T, b *TPM) json.RawMessage {
	t.Helper()
	sealed, err := b.Seal(soon(t), bytes.Clone(aSecret))
	if err != nil {
		t.Fatalf("Seal: %v", err)
	}
	return sealed
}

// mustUnseal ends the test unless sealed opens to aSecret.
func mustUnseal(t *testing.T, b *TPM, sealed json.RawMessage) {
	t.Helper()
	got, err := b.Unseal(soon(t), sealed)
	if err != nil || !bytes.Equal(got, aSecret) {
		t.Fatalf("Unseal: got %q, %v", got, err)
	}
}

// TestSecretNeverOnTheBus listens while a secret goes in and comes out, with and
// without a resource manager, and looks for every eight bytes of it.
func TestSecretNeverOnTheBus(t *testing.T) {
	for _, managed := range []bool{false, true} {
		device := swtpm.Start(t)
		proxy := swtpm.NewProxy(t, device, swtpm.Options{ResourceManager: managed, Record: true})
		b := open(t, proxied(proxy, managed))
		sealed := seal(t, b)
		mustUnseal(t, b, sealed)
		seen := proxy.Recorded()
		for at := 0; at+8 <= len(aSecret); at++ {
			if part := aSecret[at : at+8]; bytes.Contains(seen, part) {
				t.Errorf("managed %v: %q crossed the bus in clear", managed, part)
			}
		}
		o, err := parseSealed(sealed)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(seen, o.file.Pubkey.Bytes()) {
			t.Errorf("managed %v: the tape does not even hold the object's public area", managed)
		}
		if bytes.Contains(sealed, aSecret) || bytes.Contains(sealed, []byte(base64.StdEncoding.EncodeToString(aSecret)[:24])) {
			t.Errorf("managed %v: the secret is in what is stored", managed)
		}
	}
}

// TestSealCommands counts, and wants nothing left in the device.
func TestSealCommands(t *testing.T) {
	b, proxy, device := behind(t, false)
	sealed := seal(t, b)
	for name, c := range map[string]struct {
		do   func()
		want map[tpm2.TPMCC]int
	}{
		"seal": {func() { seal(t, b) }, map[tpm2.TPMCC]int{
			tpm2.TPMCCCreatePrimary: 1, tpm2.TPMCCStartAuthSession: 1, tpm2.TPMCCCreate: 1, tpm2.TPMCCFlushContext: 2,
		}},
		"unseal": {func() { mustUnseal(t, b, sealed) }, map[tpm2.TPMCC]int{
			tpm2.TPMCCCreatePrimary: 1, tpm2.TPMCCLoad: 1, tpm2.TPMCCStartAuthSession: 1, tpm2.TPMCCUnseal: 1, tpm2.TPMCCFlushContext: 3,
		}},
	} {
		proxy.ResetCounts()
		c.do()
		got := proxy.Counts()
		total := 0
		for cc, want := range c.want {
			total += want
			if got[cc] != want {
				t.Errorf("%s: got %d of command %#x, want %d", name, got[cc], uint32(cc), want)
			}
		}
		if proxy.Total() != total {
			t.Errorf("%s: got %d commands, want %d: %v", name, proxy.Total(), total, got)
		}
	}
	if len(b.held) != 0 || len(b.loaded) != 0 {
		t.Errorf("the backend believes to hold %v and %d keys", b.held, len(b.loaded))
	}
	proxy.Close()
	if left := device.Handles(); len(left) != 0 {
		t.Errorf("the device still holds %x", left)
	}
}

// TestSealBesideKeys fills the slots for objects and for sessions first.
func TestSealBesideKeys(t *testing.T) {
	b, _, _ := behind(t, false)
	var made []keys.Material
	for range 4 {
		m := create(t, b, pinned(false))
		unlock(t, b, m, testPIN)
		made = append(made, m)
	}
	sealed := seal(t, b)
	for range 2 {
		mustUnseal(t, b, sealed)
		for _, m := range made {
			mustSign(t, b, m, p256)
		}
	}
}

// TestSealedOnClearedDevice: a clear is told from damage.
func TestSealedOnClearedDevice(t *testing.T) {
	device := swtpm.Start(t)
	proxy := swtpm.NewProxy(t, device, swtpm.Options{})
	b := open(t, proxied(proxy, false))
	sealed := seal(t, b)
	proxy.Close()
	device.Clear()
	again := swtpm.NewProxy(t, device, swtpm.Options{})
	b.dial = func(ctx context.Context) (Conn, error) { return dialSocket(ctx, again.Path) }
	_, err := b.Unseal(soon(t), sealed)
	wantKind(t, err, fault.IdentityChanged)
	wantState(t, b, keys.StateIdentityChanged)
	mustUnseal(t, b, seal(t, b))
	wantState(t, b, keys.StateReady)
}

// TestSealedWithSwappedParent: an interposer that answers with a parent of its
// own learns nothing of what was sealed before.
func TestSealedWithSwappedParent(t *testing.T) {
	device, evil := swtpm.Start(t), swtpm.Start(t)
	proxy := swtpm.NewProxy(t, device, swtpm.Options{})
	b := open(t, proxied(proxy, false))
	sealed := seal(t, b)
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
	proxy.ResetCounts()
	_, err = b.Unseal(soon(t), sealed)
	wantKind(t, err, fault.IdentityChanged)
	if n := proxy.Counts()[tpm2.TPMCCUnseal]; n != 0 {
		t.Errorf("TPM2_Unseal was sent %d times under a foreign parent", n)
	}
}

// TestUnsealReplyIsAuthentic: a changed reply is not a secret.
func TestUnsealReplyIsAuthentic(t *testing.T) {
	b, proxy, _ := behind(t, false)
	sealed := seal(t, b)
	for _, at := range []int{14, 16, 40, -1, -40} {
		proxy.SetMutation(func(cc tpm2.TPMCC, reply []byte) []byte {
			if cc == tpm2.TPMCCUnseal {
				reply[(at+len(reply))%len(reply)] ^= 1
			}
			return reply
		})
		if got, err := b.Unseal(soon(t), sealed); fault.KindOf(err) != fault.DeviceFailed || got != nil {
			t.Errorf("byte %d flipped: got %q, %v, want device-failed", at, got, err)
		}
	}
	proxy.SetMutation(nil)
	mustUnseal(t, b, sealed)
}

// TestUnsealWipes looks into the memory that is ours.
func TestUnsealWipes(t *testing.T) {
	s := &session{key: bytes.Repeat([]byte{1}, 32), attrs: continueSession | encryptSession, nonceTPM: make([]byte, nonceSize)}
	key, plain := s.key, bytes.Repeat([]byte{2}, 64)
	if err := s.Decrypt(plain); err != nil {
		t.Fatal(err)
	}
	s.wipe()
	if !bytes.Equal(key, make([]byte, 32)) || !bytes.Equal(plain, make([]byte, 64)) {
		t.Error("the session's key or what it decrypted is still in memory")
	}
}

// TestSealedObjects: what is not exactly as Seal makes it is refused before the
// device sees it: an object that counts for the lockout, say, would cost tries.
func TestSealedObjects(t *testing.T) {
	b, proxy, _ := behind(t, false)
	r, err := parseRecord(seal(t, b))
	if err != nil {
		t.Fatal(err)
	}
	good, err := parseFile([]byte(r.Key), keyfile.OIDSealedKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*tpm2.TPMTPublic, *keyfile.TPMKey){
		"counts for the lockout": func(a *tpm2.TPMTPublic, _ *keyfile.TPMKey) { a.ObjectAttributes.NoDA = false },
		"can leave the TPM":      func(a *tpm2.TPMTPublic, _ *keyfile.TPMKey) { a.ObjectAttributes.FixedTPM = false },
		"signs":                  func(a *tpm2.TPMTPublic, _ *keyfile.TPMKey) { a.ObjectAttributes.SignEncrypt = true },
		"wants a policy": func(a *tpm2.TPMTPublic, _ *keyfile.TPMKey) {
			a.AuthPolicy = tpm2.TPM2BDigest{Buffer: make([]byte, 32)}
		},
		"another hash": func(a *tpm2.TPMTPublic, _ *keyfile.TPMKey) { a.NameAlg = tpm2.TPMAlgSHA384 },
		"has a value":  func(_ *tpm2.TPMTPublic, f *keyfile.TPMKey) { f.EmptyAuth = false },
		"a loadable key": func(_ *tpm2.TPMTPublic, f *keyfile.TPMKey) {
			f.Keytype = keyfile.OIDLoadableKey
		},
	} {
		f := *good
		area, err := good.Pubkey.Contents()
		if err != nil {
			t.Fatal(err)
		}
		other := *area
		change(&other, &f)
		f.Pubkey = tpm2.New2B(other)
		bad := r
		bad.Key = string(f.Bytes())
		text, err := json.Marshal(bad)
		if err != nil {
			t.Fatal(err)
		}
		proxy.ResetCounts()
		if _, err := b.Unseal(soon(t), text); fault.KindOf(err) != fault.Unsupported {
			t.Errorf("%s: got %v, want unsupported", name, err)
		}
		if proxy.Total() != 0 {
			t.Errorf("%s: the device was asked", name)
		}
	}
}

// TestSealedFileIsReadable: the object is in the format that other TPM software
// reads.
func TestSealedFileIsReadable(t *testing.T) {
	b, _, _ := behind(t, false)
	r, err := parseRecord(seal(t, b))
	if err != nil {
		t.Fatal(err)
	}
	f, err := keyfile.Decode([]byte(r.Key))
	if err != nil || !f.Keytype.Equal(keyfile.OIDSealedKey) || f.Parent != tpm2.TPMRHOwner {
		t.Errorf("got %v, %v, want a TSS2 file of sealed data under the owner hierarchy", f, err)
	}
	if !strings.HasPrefix(r.Key, "-----BEGIN TSS2 PRIVATE KEY-----\n") {
		t.Errorf("got %q", r.Key)
	}
}

// aSealed returns a record that parses; no TPM made it.
func aSealed(t testing.TB) []byte {
	t.Helper()
	secret := make([]byte, 8)
	rand.Read(secret)
	area := sealTemplate()
	f := keyfile.NewTPMKey(keyfile.OIDSealedKey, tpm2.New2B(area), tpm2.TPM2BPrivate{Buffer: secret}, keyfile.WithParent(tpm2.TPMRHOwner))
	f.EmptyAuth = true
	text, err := json.Marshal(record{Key: string(f.Bytes()), Parent: recordOf(parentRef{template: standardParent().template, name: []byte{0, 11}})})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// FuzzSealed reads records of sealed secrets.
func FuzzSealed(f *testing.F) {
	good := aSealed(f)
	if _, err := parseSealed(good); err != nil {
		f.Fatalf("the seed: %v", err)
	}
	f.Add(good)
	f.Add(aRecord(f))
	f.Fuzz(func(t *testing.T, device []byte) {
		o, err := parseSealed(device)
		if err != nil && fault.KindOf(err) == fault.Internal {
			t.Errorf("got %v, want a named fault", err)
		}
		if err == nil && (len(o.name) == 0 || len(o.parent.name) == 0) {
			t.Error("a sealed secret without a name, or without a parent's")
		}
	})
}
