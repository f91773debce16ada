package keystest

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

func testSignRefuses(t *testing.T, h Harness) {
	s := open(t, h)
	m := s.create(baseline())
	for name, c := range map[string]struct {
		scheme keys.Scheme
		digest int
	}{
		"digest of no bytes":  {keys.ECDSAP256SHA256, 0},
		"digest too short":    {keys.ECDSAP256SHA256, 31},
		"digest too long":     {keys.ECDSAP256SHA256, 33},
		"digest of SHA-384":   {keys.ECDSAP256SHA256, 48},
		"scheme of P-384":     {keys.ECDSAP384SHA384, 48},
		"scheme of RSA":       {keys.RSAPSSSHA256, 32},
		"scheme of no key":    {"ecdsa_sha1", 20},
		"no scheme":           {"", 32},
		"scheme of PKCS #1":   {keys.RSAPKCS1SHA256, 32},
		"P-384, digest wrong": {keys.ECDSAP384SHA384, 32},
	} {
		signature, err := s.Sign(s.ctx(), m, c.scheme, make([]byte, c.digest))
		wantKind(t, name, err, fault.BadRequest, fault.WrongPurpose, fault.Unsupported)
		if signature != nil {
			t.Errorf("%s: got a signature beside the error", name)
		}
	}
	s.wantSigns(m)
}

func testOtherDevice(t *testing.T, h Harness) {
	m := open(t, h).create(baseline())
	other := h.Other(t)
	defer other.Close()
	s := &subject{other, t, h}
	wantKind(t, "check", other.Check(s.ctx(), m), refusals...)
	wantKind(t, "sign", signs(s.ctx(), other, m, keys.TLSClient), refusals...)
	s.wantSigns(s.create(baseline()))
}

func testOtherBackend(t *testing.T, h Harness) {
	s := open(t, h)
	m := s.create(baseline())
	foreign := m
	foreign.Backend = "another"
	wantKind(t, "check", s.Check(s.ctx(), foreign), refusals...)
	wantKind(t, "sign", signs(s.ctx(), s, foreign, keys.TLSClient), refusals...)
	wantKind(t, "delete", s.Delete(s.ctx(), foreign), refusals...)
	if _, err := s.Export(foreign); err == nil {
		t.Error("export: got a file of another backend's key")
	}
	wantKind(t, "zero material: check", s.Check(s.ctx(), keys.Material{}), refusals...)
	s.wantSigns(m)
}

// testDamagedPublic: every flipped bit of the recorded public key is noticed.
func testDamagedPublic(t *testing.T, h Harness) {
	s := open(t, h)
	m := s.create(baseline())
	s.wantSigns(m)
	for i := range len(m.Public) {
		bad := m
		bad.Public = bytes.Clone(m.Public)
		bad.Public[i] ^= 1 << (i % 8)
		wantKind(t, "check", s.Check(s.ctx(), bad), refusals...)
	}
	for _, cut := range []int{0, 1, len(m.Public) / 2, len(m.Public) - 1} {
		bad := m
		bad.Public = m.Public[:cut]
		wantKind(t, "check of a cut key", s.Check(s.ctx(), bad), refusals...)
	}
	s.wantSigns(m)
}

// testDamagedDevice: damage to the backend's own record is refused, or has
// changed nothing that matters (the capitals of a member's name, say).
func testDamagedDevice(t *testing.T, h Harness) {
	s := open(t, h)
	m := s.create(baseline())
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	const total = 400
	refused, odd := 0, map[string]json.RawMessage{}
	for range total {
		bad := m
		bad.Device = damage(r, m.Device)
		checked, signed := s.Check(s.ctx(), bad), signs(s.ctx(), s, bad, keys.TLSClient)
		if checked != nil {
			refused++
		}
		if checked == nil && signed != nil {
			odd["check: success, sign: "+describe(signed)] = bad.Device
		}
		for _, err := range []error{checked, signed} {
			if err != nil && !slices.Contains(refusals, fault.KindOf(err)) {
				odd[describe(err)] = bad.Device
			}
		}
	}
	for what, device := range odd {
		t.Errorf("%s, want one of %v; for one: %q", what, refusals, device)
	}
	t.Logf("seed %d: %d of %d damaged records refused", seed, refused, total)
	if refused < total*8/10 {
		t.Errorf("%d of %d damaged records refused, want most", refused, total)
	}
	s.wantSigns(m)
}

// damage flips a bit, or cuts, or adds a byte.
func damage(r *rand.Rand, text []byte) json.RawMessage {
	bad := bytes.Clone(text)
	switch at := r.IntN(len(bad)); r.IntN(8) {
	case 0:
		return bad[:at]
	case 1:
		return append(bad[:at:at], append([]byte{byte(r.Uint32())}, bad[at:]...)...)
	default:
		bad[at] ^= 1 << r.IntN(8)
		return bad
	}
}

// testSwappedPublic: one key's record with another one's public key.
func testSwappedPublic(t *testing.T, h Harness) {
	s := open(t, h)
	a, b := s.create(baseline()), s.create(baseline())
	s.wantSigns(a)
	s.wantSigns(b)
	mixed := a
	mixed.Public = b.Public
	wantKind(t, "check", s.Check(s.ctx(), mixed), refusals...)
	if err := signs(s.ctx(), s, mixed, keys.TLSClient); err == nil {
		t.Error("a record with another key's public key signs, and verifies")
	}
	s.wantSigns(a)
	s.wantSigns(b)
}
