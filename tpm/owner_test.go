package tpm

import (
	"context"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/swtpm"
)

// another is a second client of the device behind proxy.
func another(t *testing.T, proxy *swtpm.Proxy) *swtpm.Conn {
	t.Helper()
	c, err := proxy.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// setOwnerAuth gives the owner hierarchy an authorisation value.
func setOwnerAuth(t *testing.T, proxy *swtpm.Proxy, value []byte) {
	t.Helper()
	_, err := tpm2.HierarchyChangeAuth{
		AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)},
		NewAuth:    tpm2.TPM2BAuth{Buffer: value},
	}.Execute(another(t, proxy))
	if err != nil {
		t.Fatal(err)
	}
}

// persistSRK puts a storage primary of that template at 0x81000001.
func persistSRK(t *testing.T, proxy *swtpm.Proxy, template tpm2.TPMTPublic) {
	t.Helper()
	c := another(t, proxy)
	primary, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(template)}.Execute(c)
	if err != nil {
		t.Fatal(err)
	}
	persist(t, c, tpm2.NamedHandle{Handle: primary.ObjectHandle, Name: primary.Name}, persistentSRK)
	if _, err := (tpm2.FlushContext{FlushHandle: primary.ObjectHandle}).Execute(c); err != nil {
		t.Fatal(err)
	}
}

func persist(t *testing.T, c *swtpm.Conn, object tpm2.NamedHandle, at tpm2.TPMHandle) {
	t.Helper()
	_, err := tpm2.EvictControl{Auth: tpm2.TPMRHOwner, ObjectHandle: object, PersistentHandle: at}.Execute(c)
	if err != nil {
		t.Fatal(err)
	}
}

// TestOwnerAuth uses values that go-tpm's own sessions get wrong, too.
func TestOwnerAuth(t *testing.T) {
	for _, value := range []string{"secret", "with \x00 inside", "\x00first", "last\x00"} {
		b, proxy, _ := behind(t, false)
		setOwnerAuth(t, proxy, []byte(value))
		_, err := b.Create(soon(t), es256)
		wantKind(t, err, fault.Unsupported)
		if e, _ := fault.AsError(err); !contains(e.Hint, "owner-auth") {
			t.Errorf("got hint %q, want the setting's name", e.Hint)
		}
		c := proxied(proxy, false)
		c.OwnerAuth = []byte(value)
		knowing := open(t, c)
		asked := es256
		asked.Persistent = true
		for _, asked := range []keys.Template{es256, asked, pinned(false)} {
			m := create(t, knowing, asked)
			if !m.PIN {
				mustSign(t, knowing, m, p256)
			}
			if err := knowing.Delete(soon(t), m); err != nil {
				t.Errorf("Delete: %v", err)
			}
		}
	}
}

func TestOwnerAuthIsNotOnTheBus(t *testing.T) {
	device := swtpm.Start(t)
	proxy := swtpm.NewProxy(t, device, swtpm.Options{})
	setOwnerAuth(t, proxy, []byte("owner's secret"))
	proxy.Close()
	tap := swtpm.NewProxy(t, device, swtpm.Options{Record: true})
	c := proxied(tap, false)
	c.OwnerAuth = []byte("owner's secret")
	b := open(t, c)
	mustSign(t, b, create(t, b, es256), p256)
	if contains(string(tap.Recorded()), "owner's secret") {
		t.Error("the owner authorisation crossed the bus in clear")
	}
}

// TestPersistentSRK: without the owner's authorisation a machine's storage root
// key serves, whatever template it was made from.
func TestPersistentSRK(t *testing.T) {
	b, proxy, _ := behind(t, false)
	persistSRK(t, proxy, tpm2.RSASRKTemplate)
	before := create(t, b, es256) // made while the owner hierarchy was open
	setOwnerAuth(t, proxy, []byte("secret"))
	m := create(t, b, es256)
	asked := es256
	asked.Persistent = true
	unfinished, err := b.Create(soon(t), asked)
	if err == nil {
		err = b.Persist(soon(t), unfinished)
	}
	wantKind(t, err, fault.Unsupported)
	again := open(t, proxied(proxy, false))
	mustSign(t, again, m, p256)
	wantKind(t, signs(soon(t), again, before, p256), fault.Unsupported) // its parent is another key
	pin := create(t, again, pinned(false))
	unlock(t, again, pin, testPIN)
	mustSign(t, again, pin, p256)

	persistNothing(t, proxy)
	fresh := open(t, proxied(proxy, false))
	wantKind(t, signs(soon(t), fresh, m, p256), fault.IdentityChanged)
}

// persistNothing removes the storage root key, as its owner may.
func persistNothing(t *testing.T, proxy *swtpm.Proxy) {
	t.Helper()
	c := another(t, proxy)
	public, err := tpm2.ReadPublic{ObjectHandle: persistentSRK}.Execute(c)
	if err != nil {
		t.Fatal(err)
	}
	_, err = tpm2.EvictControl{
		Auth:             tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth([]byte("secret"))},
		ObjectHandle:     tpm2.NamedHandle{Handle: persistentSRK, Name: public.Name},
		PersistentHandle: persistentSRK,
	}.Execute(c)
	if err != nil {
		t.Fatal(err)
	}
}

// TestSameSRK: a key made under the standard primary is used under the same
// primary at the persistent handle once the owner hierarchy is closed.
func TestSameSRK(t *testing.T) {
	b, proxy, _ := behind(t, false)
	area, err := tpm2.Unmarshal[tpm2.TPMTPublic](standardParent().template)
	if err != nil {
		t.Fatal(err)
	}
	persistSRK(t, proxy, *area)
	m := create(t, b, es256)
	setOwnerAuth(t, proxy, []byte("secret"))
	again := open(t, proxied(proxy, false))
	mustSign(t, again, m, p256)
}

// TestPersistentCollision: what is not ours at a persistent handle stays, and
// our key signs all the same.
func TestPersistentCollision(t *testing.T) {
	for _, managed := range []bool{false, true} {
		device := swtpm.Start(t)
		proxy := swtpm.NewProxy(t, device, swtpm.Options{ResourceManager: managed})
		b := open(t, proxied(proxy, managed))
		asked := es256
		asked.Persistent = true
		first, second := create(t, b, asked), create(t, b, asked)
		k, err := parseMaterial(second)
		if err != nil {
			t.Fatal(err)
		}
		if k.persistent != firstPersistent+1 {
			t.Errorf("got handle %s, want the first free one", handleText(k.persistent))
		}
		if err := b.Delete(soon(t), second); err != nil {
			t.Fatal(err)
		}
		persistSRK(t, proxy, tpm2.ECCSRKTemplate)
		c := another(t, proxy)
		foreign, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}.Execute(c)
		if err != nil {
			t.Fatal(err)
		}
		persist(t, c, tpm2.NamedHandle{Handle: foreign.ObjectHandle, Name: foreign.Name}, k.persistent)
		c.Close()

		again := open(t, proxied(proxy, managed))
		mustSign(t, again, second, p256)
		mustSign(t, again, first, p256)
		if err := again.Delete(soon(t), second); err != nil {
			t.Fatal(err)
		}
		again.Close()
		b.Close()
		proxy.Close()
		want := map[tpm2.TPMHandle]bool{persistentSRK: true, firstPersistent: true, firstPersistent + 1: true}
		for _, h := range device.Handles() {
			delete(want, h)
		}
		if len(want) != 0 {
			t.Errorf("managed %v: %v is gone from the device", managed, want)
		}
	}
}

// TestPersistentKeyComesBack: a persistent key that another program removed is put
// back where its record says.
func TestPersistentKeyComesBack(t *testing.T) {
	b, proxy, _ := behind(t, false)
	asked := es256
	asked.Persistent = true
	m := create(t, b, asked)
	twin := open(t, proxied(proxy, false))
	if err := twin.Delete(soon(t), m); err != nil {
		t.Fatal(err)
	}
	mustSign(t, b, m, p256)
	proxy.ResetCounts()
	mustSign(t, b, m, p256)
	if got := proxy.Total(); got != 1 {
		t.Errorf("got %d commands, want 1", got)
	}
	k, err := parseMaterial(m)
	if err != nil {
		t.Fatal(err)
	}
	l, err := twin.sharedLink(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if found, err := twin.holds(soon(t), l, place{k.persistent, k.name}); !found {
		t.Errorf("the key is not at its handle: %v", err)
	}
}
