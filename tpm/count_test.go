package tpm

import (
	"testing"

	"holdfast/internal/keys"
)

// TestCommandsPerSignature holds the counts that PERFORMANCE figures are made
// of: what the device does per signature in the steady state.
func TestCommandsPerSignature(t *testing.T) {
	for _, c := range []struct {
		name       string
		managed    bool
		persistent bool
		pin        string
		want       int
	}{
		{"alone, transient", false, false, "", 1},
		{"alone, persistent", false, true, "", 1},
		{"alone, PIN", false, false, "1234", 1},
		{"managed, transient", true, false, "", 4},
		{"managed, persistent", true, true, "", 1},
		{"managed, persistent, PIN", true, true, "1234", 3},
		{"managed, transient, PIN", true, false, "1234", 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, proxy, _ := behind(t, c.managed)
			asked := es256
			asked.Persistent, asked.PIN = c.persistent, []byte(c.pin)
			m := create(t, b, asked)
			other := create(t, b, es256) // another loaded key costs nothing
			if c.pin != "" {
				unlock(t, b, m, asked.PIN)
			}
			mustSign(t, b, other, keys.ECDSAP256SHA256)
			mustSign(t, b, m, keys.ECDSAP256SHA256)
			proxy.ResetCounts()
			const n = 5
			for range n {
				mustSign(t, b, m, keys.ECDSAP256SHA256)
			}
			if got := proxy.Total(); got != n*c.want {
				t.Errorf("got %d commands for %d signatures, want %d: %v", got, n, n*c.want, proxy.Counts())
			}
		})
	}
}

// TestColdPath counts what a fresh process sends before and with its first
// signature.
func TestColdPath(t *testing.T) {
	for _, c := range []struct {
		persistent bool
		want       int
	}{{false, 4}, {true, 2}} {
		b, proxy, _ := behind(t, false)
		asked := es256
		asked.Persistent = c.persistent
		m := create(t, b, asked)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		proxy.ResetCounts()
		again := open(t, proxied(proxy, false))
		if got := proxy.Total(); got != 0 {
			t.Errorf("Open sent %d commands, want none", got)
		}
		mustSign(t, again, m, keys.ECDSAP256SHA256)
		if got := proxy.Total(); got != c.want {
			t.Errorf("persistent %v: got %d commands to the first signature, want %d: %v", c.persistent, got, c.want, proxy.Counts())
		}
	}
}
