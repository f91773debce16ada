package tpm

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/swtpm"
)

// open returns a backend on device that is closed with the test.
func open(t *testing.T, c Config) *TPM {
	t.Helper()
	b, err := Open(c)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// behind returns a backend on a proxy in front of a new TPM. managed makes the
// proxy behave like the kernel's resource manager.
func behind(t *testing.T, managed bool) (*TPM, *swtpm.Proxy, *swtpm.TPM) {
	t.Helper()
	device := swtpm.Start(t)
	proxy := swtpm.NewProxy(t, device, swtpm.Options{ResourceManager: managed})
	return open(t, proxied(proxy, managed)), proxy, device
}

// proxied is the configuration for a proxy.
func proxied(p *swtpm.Proxy, managed bool) Config {
	dial := func(ctx context.Context) (Conn, error) { return dialSocket(ctx, p.Path) }
	device := "swtpm:" + p.Path
	if managed {
		device = "tpm:" + p.Path
	}
	return Config{Device: device, Dial: dial, ResourceManager: managed}
}

// within returns a context for one call of a test.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func soon(t *testing.T) context.Context { return within(t, 20*time.Second) }

// es256 is the plainest key.
var es256 = keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256}

// create makes a key or ends the test.
func create(t *testing.T, b *TPM, asked keys.Template) keys.Material {
	t.Helper()
	m, err := b.Create(soon(t), asked)
	if err != nil {
		t.Fatalf("Create(%v): %v", asked, err)
	}
	if err := b.Persist(soon(t), m); err != nil {
		t.Fatalf("Persist(%v): %v", asked, err)
	}
	return m
}

// signs signs a random digest and returns the error, that of verifying the
// signature included.
func signs(ctx context.Context, b *TPM, m keys.Material, s keys.Scheme) error {
	digest := make([]byte, s.Hash().Size())
	rand.Read(digest)
	signature, err := b.Sign(ctx, m, s, digest)
	if err != nil {
		return err
	}
	public, err := keys.ParsePublic(m.Public)
	if err != nil {
		return err
	}
	return keys.Verify(public, s, digest, signature)
}

// mustSign ends the test unless the key signs.
func mustSign(t *testing.T, b *TPM, m keys.Material, s keys.Scheme) {
	t.Helper()
	if err := signs(soon(t), b, m, s); err != nil {
		t.Fatalf("Sign: %v", err)
	}
}

// wantKind ends the test unless err is of the kind.
func wantKind(t *testing.T, err error, want fault.Kind) {
	t.Helper()
	if got := fault.KindOf(err); got != want {
		t.Fatalf("got kind %q (%v), want %q", got, err, want)
	}
}

// TestEveryKeySigns makes each kind of key in each way of keeping it.
func TestEveryKeySigns(t *testing.T) {
	for _, c := range []struct {
		name   string
		asked  keys.Template
		scheme keys.Scheme
	}{
		{"ES256", es256, keys.ECDSAP256SHA256},
		{"ES256 persistent", keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, Persistent: true}, keys.ECDSAP256SHA256},
		{"ES384", keys.Template{Purpose: keys.TLSServer, Algorithm: keys.ES384}, keys.ECDSAP384SHA384},
		{"RS256 for TLS", keys.Template{Purpose: keys.TLSClient, Algorithm: keys.RS256}, keys.RSAPSSSHA256},
		{"RS256 for tokens", keys.Template{Purpose: keys.ServiceAccount, Algorithm: keys.RS256}, keys.RSAPKCS1SHA256},
		{"RS256 with a PIN", keys.Template{Purpose: keys.TLSClient, Algorithm: keys.RS256, PIN: []byte("1234")}, keys.RSAPSSSHA256},
		{"PIN, persistent", keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES256, Persistent: true, PIN: []byte("1234")}, keys.ECDSAP256SHA256},
	} {
		for _, managed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, managed %v", c.name, managed), func(t *testing.T) {
				t.Parallel()
				b, _, _ := behind(t, managed)
				m := create(t, b, c.asked)
				if len(c.asked.PIN) != 0 {
					wantKind(t, signs(soon(t), b, m, c.scheme), fault.PINRequired)
					unlock(t, b, m, c.asked.PIN)
				}
				mustSign(t, b, m, c.scheme)
			})
		}
	}
}

// unlock unlocks a key for the length of a test.
func unlock(t *testing.T, b *TPM, m keys.Material, pin []byte) {
	t.Helper()
	if err := b.Unlock(soon(t), m, pin, time.Now().Add(time.Minute)); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
}

func contains(s, part string) bool { return strings.Contains(s, part) }
