package swtpm_test

import (
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"holdfast/test/swtpm"
)

// signingKey makes a primary that signs, so that a test needs no parent.
func signingKey(t *testing.T, tpm transport.TPM) *tpm2.CreatePrimaryResponse {
	t.Helper()
	rsp, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.TPMTPublic{
		Type:    tpm2.TPMAlgECC,
		NameAlg: tpm2.TPMAlgSHA256,
		ObjectAttributes: tpm2.TPMAObject{
			FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true,
			UserWithAuth: true, NoDA: true, SignEncrypt: true,
		},
		Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{
			CurveID: tpm2.TPMECCNistP256,
			Scheme: tpm2.TPMTECCScheme{
				Scheme:  tpm2.TPMAlgECDSA,
				Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgECDSA, &tpm2.TPMSSigSchemeECDSA{HashAlg: tpm2.TPMAlgSHA256}),
			},
		}),
	})}.Execute(tpm)
	if err != nil {
		t.Fatal(err)
	}
	return rsp
}

func sign(tpm transport.TPM, key tpm2.TPMHandle, name tpm2.TPM2BName, auth tpm2.Session) error {
	digest := sha256.Sum256([]byte("message"))
	_, err := tpm2.Sign{
		KeyHandle:  tpm2.AuthHandle{Handle: key, Name: name, Auth: auth},
		Digest:     tpm2.TPM2BDigest{Buffer: digest[:]},
		Validation: tpm2.TPMTTKHashCheck{Tag: tpm2.TPMSTHashCheck},
		InScheme:   tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgNull},
	}.Execute(tpm)
	return err
}

var password = tpm2.PasswordAuth(nil)

// TestManagedCounts pins what the kernel's resource manager makes of one
// signature; the figures of tpm_commands_per_signature rest on it.
func TestManagedCounts(t *testing.T) {
	for _, test := range []struct {
		name       string
		persistent bool
		session    bool
		want       map[tpm2.TPMCC]int
	}{
		{"transient, password", false, false, map[tpm2.TPMCC]int{
			tpm2.TPMCCContextLoad: 1, tpm2.TPMCCSign: 1, tpm2.TPMCCContextSave: 1, tpm2.TPMCCFlushContext: 1}},
		{"transient, kept session", false, true, map[tpm2.TPMCC]int{
			tpm2.TPMCCContextLoad: 2, tpm2.TPMCCSign: 1, tpm2.TPMCCContextSave: 2, tpm2.TPMCCFlushContext: 1}},
		{"persistent, password", true, false, map[tpm2.TPMCC]int{tpm2.TPMCCSign: 1}},
		{"persistent, kept session", true, true, map[tpm2.TPMCC]int{
			tpm2.TPMCCContextLoad: 1, tpm2.TPMCCSign: 1, tpm2.TPMCCContextSave: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, p := proxy(t, swtpm.Options{ResourceManager: true})
			c := dialProxy(t, p)
			key := signingKey(t, c)
			handle := key.ObjectHandle
			if test.persistent {
				handle = persist(t, c, key)
			}
			auth := password
			if test.session {
				var err error
				if auth, _, err = tpm2.HMACSession(c, tpm2.TPMAlgSHA256, 16); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 3 {
				p.ResetCounts()
				if err := sign(c, handle, key.Name, auth); err != nil {
					t.Fatalf("signature %d: %v", i, err)
				}
				if got := p.Counts(); !maps.Equal(got, test.want) {
					t.Errorf("signature %d: got %v, want %v", i, got, test.want)
				}
			}
		})
	}
}

// persist moves key to a persistent handle.
func persist(t *testing.T, c *swtpm.Conn, key *tpm2.CreatePrimaryResponse) tpm2.TPMHandle {
	t.Helper()
	const handle = tpm2.TPMHandle(0x81008f00)
	_, err := tpm2.EvictControl{
		Auth:             tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: password},
		ObjectHandle:     &tpm2.NamedHandle{Handle: key.ObjectHandle, Name: key.Name},
		PersistentHandle: handle,
	}.Execute(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (tpm2.FlushContext{FlushHandle: key.ObjectHandle}).Execute(c); err != nil {
		t.Fatal(err)
	}
	return handle
}

// TestManagedConnectionsAreApart: more keys than the TPM has places, and no test
// reaches another's.
func TestManagedConnectionsAreApart(t *testing.T) {
	tpm, p := proxy(t, swtpm.Options{ResourceManager: true})
	var conns []*swtpm.Conn
	var made []*tpm2.CreatePrimaryResponse
	for range 5 {
		c := dialProxy(t, p)
		conns, made = append(conns, c), append(made, signingKey(t, c))
	}
	for i, c := range conns {
		if err := sign(c, made[i].ObjectHandle, made[i].Name, password); err != nil {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	stranger := dialProxy(t, p)
	if err := sign(stranger, made[0].ObjectHandle, made[0].Name, password); err == nil {
		t.Error("a connection has used another one's key")
	}
	if got := transient(t, stranger); len(got) != 0 {
		t.Errorf("a new connection sees %#x", got)
	}
	if got, want := transient(t, conns[0]), []tpm2.TPMHandle{made[0].ObjectHandle}; !slices.Equal(got, want) {
		t.Errorf("its own handles: got %#x, want %#x", got, want)
	}
	p.Close()
	if got := tpm.Handles(); len(got) != 0 {
		t.Errorf("between commands the TPM holds %#x, want nothing", got)
	}
}

// transient lists the transient objects that c sees.
func transient(t *testing.T, c *swtpm.Conn) []tpm2.TPMHandle {
	t.Helper()
	rsp, err := tpm2.GetCapability{Capability: tpm2.TPMCapHandles, Property: 0x80000000, PropertyCount: 10}.Execute(c)
	if err != nil {
		t.Fatal(err)
	}
	list, err := rsp.CapabilityData.Data.Handles()
	if err != nil {
		t.Fatal(err)
	}
	return list.Handle
}

func TestManagedFlush(t *testing.T) {
	_, p := proxy(t, swtpm.Options{ResourceManager: true})
	c := dialProxy(t, p)
	key := signingKey(t, c)
	if err := sign(c, 0x80000000, key.Name, password); err == nil {
		t.Error("the TPM's own handle can be used")
	}
	p.ResetCounts()
	if _, err := (tpm2.FlushContext{FlushHandle: key.ObjectHandle}).Execute(c); err != nil {
		t.Fatal(err)
	}
	want := map[tpm2.TPMCC]int{tpm2.TPMCCContextLoad: 1, tpm2.TPMCCFlushContext: 1}
	if got := p.Counts(); !maps.Equal(got, want) {
		t.Errorf("the flush: got %v, want %v", got, want)
	}
	if err := sign(c, key.ObjectHandle, key.Name, password); err == nil {
		t.Error("a flushed key signs")
	}
	if _, closer, err := tpm2.HMACSession(c, tpm2.TPMAlgSHA256, 16); err != nil {
		t.Error(err)
	} else if err := closer(); err != nil {
		t.Errorf("flush of a session: %v", err)
	}
	p.ResetCounts()
	if err := random(c); err != nil || p.Total() != 1 {
		t.Errorf("after the flush: got %v and %v, want one command", err, p.Counts())
	}
}

// TestManagedCloseFlushesSessions: the TPM counts saved sessions as active, and
// has 64 places in all.
func TestManagedCloseFlushesSessions(t *testing.T) {
	_, p := proxy(t, swtpm.Options{ResourceManager: true})
	for range 3 {
		c := dialProxy(t, p)
		for range 3 {
			if _, _, err := tpm2.HMACSession(c, tpm2.TPMAlgSHA256, 16); err != nil {
				t.Fatal(err)
			}
		}
		before := p.Counts()[tpm2.TPMCCFlushContext]
		c.Close()
		wait(t, "the flush", func() bool { return p.Counts()[tpm2.TPMCCFlushContext] == before+3 })
	}
}

// TestManagedOneShotSession: a session that ends with its command is forgotten.
func TestManagedOneShotSession(t *testing.T) {
	_, p := proxy(t, swtpm.Options{ResourceManager: true})
	c := dialProxy(t, p)
	key := signingKey(t, c)
	for range 5 {
		if err := sign(c, key.ObjectHandle, key.Name, tpm2.HMAC(tpm2.TPMAlgSHA256, 16)); err != nil {
			t.Fatal(err)
		}
	}
	p.ResetCounts()
	if err := random(c); err != nil || p.Total() != 4 { // the key in and out, and the command
		t.Errorf("got %v and %v, want only the key moved", err, p.Counts())
	}
}

func TestManagedSlotsRunOut(t *testing.T) {
	_, p := proxy(t, swtpm.Options{ResourceManager: true})
	c := dialProxy(t, p)
	for range 3 {
		signingKey(t, c)
	}
	_, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}.Execute(c)
	if !errors.Is(err, tpm2.TPMRCObjectMemory) {
		t.Errorf("a fourth object: got %v, want TPM_RC_OBJECT_MEMORY", err)
	}
	if err := random(dialProxy(t, p)); err != nil {
		t.Errorf("another connection: %v", err)
	}
}

func TestManagedReset(t *testing.T) {
	tpm, p := proxy(t, swtpm.Options{ResourceManager: true})
	c := dialProxy(t, p)
	key := signingKey(t, c)
	tpm.Reset()
	if err := sign(c, key.ObjectHandle, key.Name, password); err == nil {
		t.Error("a key survived the reset")
	}
	c = dialProxy(t, p)
	if _, err := (tpm2.Startup{StartupType: tpm2.TPMSUClear}).Execute(c); err != nil {
		t.Fatal(err)
	}
	signingKey(t, c)
}
