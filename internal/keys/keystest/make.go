package keystest

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

func testCreate(t *testing.T, h Harness) {
	s := open(t, h)
	for _, c := range h.Can {
		for _, p := range []keys.Purpose{keys.TLSClient, keys.ServiceAccount} {
			what := fmt.Sprintf("%s %d for %s", c.Algorithm, c.RSABits, p)
			m := s.create(keys.Template{Purpose: p, Algorithm: c.Algorithm, RSABits: c.RSABits})
			checkMade(t, what, s.Name(), c, m)
			if err := s.Check(s.ctx(), m); err != nil {
				t.Errorf("%s: check: %v", what, err)
			}
			if err := signs(s.ctx(), s, m, p); err != nil {
				t.Errorf("%s: sign: %v", what, err)
			}
		}
	}
}

func checkMade(t *testing.T, what, backend string, c keys.Capability, m keys.Material) {
	t.Helper()
	public, err := keys.ParsePublic(m.Public)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	a, bits, err := keys.AlgorithmOf(public)
	if err != nil || a != c.Algorithm || bits != c.RSABits {
		t.Errorf("%s: got a %s key of %d bits, %v", what, a, bits, err)
	}
	if m.Backend != backend || m.PIN || m.Imported {
		t.Errorf("%s: got backend %q, PIN %v, imported %v, want %q, false, false", what, m.Backend, m.PIN, m.Imported, backend)
	}
}

func testCreateRefuses(t *testing.T, h Harness) {
	s := open(t, h)
	for name, change := range map[string]func(*keys.Template){
		"unknown algorithm": func(t *keys.Template) { t.Algorithm = "HS256" },
		"no algorithm":      func(t *keys.Template) { t.Algorithm = "" },
		"RSA 1024":          func(t *keys.Template) { t.Algorithm, t.RSABits = keys.RS256, 1024 },
		"RSA 2047":          func(t *keys.Template) { t.Algorithm, t.RSABits = keys.RS256, 2047 },
		"PIN too short":     func(t *keys.Template) { t.PIN = []byte("123") },
		"PIN too long":      func(t *keys.Template) { t.PIN = bytes.Repeat([]byte("1"), keys.MaxPIN+1) },
		"zero byte in PIN":  func(t *keys.Template) { t.PIN = []byte("12\x0034") },
	} {
		template := baseline()
		change(&template)
		_, err := s.Create(s.ctx(), template)
		wantKind(t, name, err, fault.BadRequest, fault.Unsupported)
	}
	s.wantSigns(s.create(baseline()))
}

// testMaterial: what was stored and read back is as good as what was made.
func testMaterial(t *testing.T, h Harness) {
	s := open(t, h)
	m := s.create(baseline())
	back := stored(t, m)
	if err := s.Check(s.ctx(), back); err != nil {
		t.Errorf("check: %v", err)
	}
	s.wantSigns(back)
	if other := s.create(baseline()); bytes.Equal(other.Public, m.Public) {
		t.Error("two keys have the same public key")
	}
}

func testPersistent(t *testing.T, h Harness) {
	template := baseline()
	template.Persistent = true
	s := open(t, h)
	if !h.Persistent {
		_, err := s.Create(s.ctx(), template)
		wantKind(t, "a persistent key on a device that cannot", err, fault.Unsupported)
		return
	}
	m := s.create(template)
	s.wantSigns(m)
	s.Close()
	s = open(t, h)
	m = stored(t, m)
	if err := s.Check(s.ctx(), m); err != nil {
		t.Errorf("check: %v", err)
	}
	s.wantSigns(m)
	if err := s.Delete(s.ctx(), m); err != nil {
		t.Errorf("delete: %v", err)
	}
	s.wantSigns(s.create(template)) // its place is free again
}

// testManyKeys: more keys than the device has places, each used again after all
// the others.
func testManyKeys(t *testing.T, h Harness) {
	s := open(t, h)
	var made []keys.Material
	for range 2*h.Slots + 3 {
		made = append(made, s.create(baseline()))
	}
	for range 2 {
		for _, m := range made {
			s.wantSigns(m)
		}
	}
}

func testConcurrent(t *testing.T, h Harness) {
	s := open(t, h)
	var made []keys.Material
	for range h.Slots + 1 {
		made = append(made, s.create(baseline()))
	}
	var all sync.WaitGroup
	for i := range 16 {
		ctx := s.ctx()
		all.Go(func() {
			for j := range 4 {
				if err := signs(ctx, s, made[(i+j)%len(made)], keys.TLSClient); err != nil {
					t.Errorf("signature %d of caller %d: %v", j, i, err)
				}
			}
		})
	}
	all.Wait()
}

func testDelete(t *testing.T, h Harness) {
	s := open(t, h)
	keep, gone := s.create(baseline()), s.create(baseline())
	s.wantSigns(gone)
	for range 2 { // a repeat after a lost reply does no harm
		if err := s.Delete(s.ctx(), gone); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	s.wantSigns(keep)
}
