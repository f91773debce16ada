package tpm

import (
	"testing"

	keyfile "github.com/foxboron/go-tpm-keyfiles"
	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/swtpm"
)

// claimEmpty returns the file of a key with a PIN, altered to say that it has
// none.
func claimEmpty(t *testing.T, b *TPM, m keys.Material) []byte {
	t.Helper()
	file, err := b.Export(m)
	if err != nil {
		t.Fatal(err)
	}
	f, err := keyfile.Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	f.EmptyAuth = true
	return f.Bytes()
}

// wantFailed ends the test unless so many tries have failed on the device.
func wantFailed(t *testing.T, proxy *swtpm.Proxy, want int) {
	t.Helper()
	c := another(t, proxy)
	reply, err := tpm2.GetCapability{Capability: tpm2.TPMCapTPMProperties, Property: uint32(tpm2.TPMPTLockoutCounter), PropertyCount: 1}.Execute(c)
	if err != nil {
		t.Fatal(err)
	}
	list, err := reply.CapabilityData.Data.TPMProperties()
	if err != nil {
		t.Fatal(err)
	}
	if got := list.TPMProperty[0].Value; got != uint32(want) {
		t.Fatalf("got %d failed tries on the device, want %d", got, want)
	}
}

// TestImportProvesEmpty: a file that hides its key's PIN costs one try where an
// imported key is allowed, and however often it is tried, the device is not
// locked.
func TestImportProvesEmpty(t *testing.T) {
	for _, asked := range []keys.Template{pinned(false), {Purpose: keys.TLSClient, Algorithm: keys.RS256, PIN: testPIN}} {
		b, proxy, _ := behind(t, false)
		m := create(t, b, asked)
		file := claimEmpty(t, b, m)
		plain := keys.Template{Purpose: asked.Purpose, Algorithm: asked.Algorithm}
		_, err := b.Import(soon(t), plain, file, false)
		wantKind(t, err, fault.Unsupported)
		wantFailed(t, proxy, 0)
		_, err = b.Import(soon(t), plain, file, true)
		wantKind(t, err, fault.PINRequired)
		if e, _ := fault.AsError(err); !contains(e.Message, "claims that the key has no PIN") {
			t.Errorf("got %q, want what the file says", e.Message)
		}
		wantFailed(t, proxy, 1)
		for _, want := range []fault.Kind{fault.PINRequired, fault.PINBlocked, fault.PINBlocked, fault.PINBlocked} {
			_, err = b.Import(soon(t), plain, file, true)
			wantKind(t, err, want)
		}
		wantFailed(t, proxy, 2)
		wantState(t, b, keys.StateReady)
	}
}

// TestImportIsNotTriedTwice loses the reply to the proof.
func TestImportIsNotTriedTwice(t *testing.T) {
	b, proxy, _ := behind(t, false)
	m := create(t, b, pinned(false))
	unlock(t, b, m, testPIN) // a TPM answers TPM_RC_RETRY to the first use of such a key
	file := claimEmpty(t, b, m)
	proxy.SetScript(swtpm.First(1, tpm2.TPMCCSign, swtpm.DropAfter))
	if _, err := b.Import(soon(t), es256, file, true); err == nil {
		t.Error("a lost reply proved that there is no PIN")
	}
	wantFailed(t, proxy, 1)
}

// altered is a record that hides its key's PIN.
func altered(t *testing.T, b *TPM, m keys.Material) keys.Material {
	t.Helper()
	k, err := parseKeyFile(claimEmpty(t, b, m))
	if err != nil {
		t.Fatal(err)
	}
	if k.parent, err = recordedParent(t, m); err != nil {
		t.Fatal(err)
	}
	changed, err := k.material()
	if err != nil {
		t.Fatal(err)
	}
	if !changed.Imported || changed.PIN {
		t.Errorf("got imported %v, PIN %v, want true, false", changed.Imported, changed.PIN)
	}
	return changed
}

func recordedParent(t *testing.T, m keys.Material) (parentRef, error) {
	t.Helper()
	r, err := parseRecord(m.Device)
	if err != nil {
		t.Fatal(err)
	}
	return r.Parent.ref()
}

// TestSignProvesEmpty: a record that hides its key's PIN costs one try for each
// process, and none when the lockout is near.
func TestSignProvesEmpty(t *testing.T) {
	b, proxy, _ := behind(t, false)
	m := create(t, b, pinned(false))
	bad := altered(t, b, m)
	for range 5 {
		wantKind(t, signs(soon(t), b, bad, p256), fault.PINRequired)
	}
	wantFailed(t, proxy, 1)
	again := open(t, proxied(proxy, false))
	wantKind(t, signs(soon(t), again, bad, p256), fault.PINRequired)
	wantFailed(t, proxy, 2)
	for range 3 {
		restarted := open(t, proxied(proxy, false))
		wantKind(t, signs(soon(t), restarted, bad, p256), fault.PINBlocked)
		restarted.Close()
	}
	wantFailed(t, proxy, 2)
	wantKind(t, signs(soon(t), b, bad, p256), fault.PINRequired) // without asking the device
	lying := bad
	lying.Imported = false
	wantKind(t, signs(soon(t), open(t, proxied(proxy, false)), lying, p256), fault.KeyMismatch)
}

// TestCountedKeySigns: a foreign key that counts for the lockout and has no PIN
// is taken as imported. Once proven it costs nothing more, near the lockout too.
func TestCountedKeySigns(t *testing.T) {
	b, proxy, _ := behind(t, false)
	file := foreignKey(t, proxy, standardParent())
	_, err := b.Import(soon(t), es256, file, false)
	wantKind(t, err, fault.Unsupported)
	m, err := b.Import(soon(t), es256, file, true)
	if err != nil {
		t.Fatal(err)
	}
	if !m.Imported {
		t.Error("the material does not say imported")
	}
	proxy.ResetCounts()
	for range 3 {
		mustSign(t, b, m, p256)
	}
	if got := proxy.Total(); got != 3 {
		t.Errorf("got %d commands for 3 signatures, want 3: %v", got, proxy.Counts())
	}
	again := open(t, proxied(proxy, false))
	proxy.ResetCounts()
	mustSign(t, again, m, p256)
	mustSign(t, again, m, p256)
	if got := proxy.Counts()[tpm2.TPMCCGetCapability]; got != 1 {
		t.Errorf("got %d looks at the counters in a new process, want 1", got)
	}
	wantFailed(t, proxy, 0)
	pin := create(t, b, pinned(false))
	for range 2 {
		wantKind(t, unlockErr(t, b, pin, "wrong"), fault.PINRequired)
	}
	mustSign(t, b, m, p256)
	mustSign(t, again, m, p256)
	wantKind(t, signs(soon(t), open(t, proxied(proxy, false)), m, p256), fault.PINBlocked)
}

// foreignKey makes a key without PIN that counts for the lockout, as other
// programs do.
func foreignKey(t *testing.T, proxy *swtpm.Proxy, ref parentRef) []byte {
	t.Helper()
	b := open(t, proxied(proxy, false))
	l, err := b.sharedLink(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	var file []byte
	err = b.withParent(soon(t), l, ref, func(p parent) error {
		made, err := tpm2.Create{ParentHandle: p.auth(), InPublic: tpm2.New2B(signingPrimary())}.Execute(l.on(soon(t)))
		if err != nil {
			return err
		}
		f := keyfile.NewTPMKey(keyfile.OIDLoadableKey, made.OutPublic, made.OutPrivate, keyfile.WithParent(fileParent(ref)))
		f.EmptyAuth = true
		file = f.Bytes()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	return file
}

// TestParentIsNotTried: a key file may name a persistent parent with an
// authorisation of its own. Loading under it would be a try each time.
func TestParentIsNotTried(t *testing.T) {
	b, proxy, _ := behind(t, false)
	f, err := keyfile.Decode(foreignKey(t, proxy, standardParent()))
	if err != nil {
		t.Fatal(err)
	}
	storage := tpm2.ECCSRKTemplate
	storage.ObjectAttributes.NoDA = false
	persistStorage(t, proxy, storage, []byte("parent's"))
	f.Parent = persistentSRK
	for range 5 {
		_, err = b.Import(soon(t), es256, f.Bytes(), true)
		wantKind(t, err, fault.Unsupported)
	}
	wantFailed(t, proxy, 0)
	if e, _ := fault.AsError(err); !contains(e.Hint, "noda") {
		t.Errorf("got hint %q, want the attribute", e.Hint)
	}
	setOwnerAuth(t, proxy, []byte("secret")) // now the storage root key would serve new keys
	_, err = b.Create(soon(t), es256)
	wantKind(t, err, fault.Unsupported)
	wantFailed(t, proxy, 0)
}

// persistStorage puts a storage primary with an authorisation value at
// 0x81000001.
func persistStorage(t *testing.T, proxy *swtpm.Proxy, template tpm2.TPMTPublic, auth []byte) {
	t.Helper()
	c := another(t, proxy)
	primary, err := tpm2.CreatePrimary{
		PrimaryHandle: tpm2.TPMRHOwner,
		InSensitive:   tpm2.TPM2BSensitiveCreate{Sensitive: &tpm2.TPMSSensitiveCreate{UserAuth: tpm2.TPM2BAuth{Buffer: auth}}},
		InPublic:      tpm2.New2B(template),
	}.Execute(c)
	if err != nil {
		t.Fatal(err)
	}
	persist(t, c, tpm2.NamedHandle{Handle: primary.ObjectHandle, Name: primary.Name}, persistentSRK)
	if _, err := (tpm2.FlushContext{FlushHandle: primary.ObjectHandle}).Execute(c); err != nil {
		t.Fatal(err)
	}
}
