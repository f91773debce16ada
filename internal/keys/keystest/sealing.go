package keystest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	mathrand "math/rand/v2"
	"slices"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// sealer returns the backend's ability to seal, or nil when it has none and the
// harness does not say that it has.
func (s *subject) sealer() keys.Sealer {
	s.t.Helper()
	b, ok := s.Backend.(keys.Sealer)
	if s.h.Seals && !ok {
		s.t.Fatal("the backend is not a keys.Sealer")
	}
	return b
}

// seal seals a secret or ends the test.
func (s *subject) seal(secret []byte) json.RawMessage {
	s.t.Helper()
	sealed, err := s.sealer().Seal(s.ctx(), bytes.Clone(secret))
	if err != nil {
		s.t.Fatalf("seal %d bytes: %v", len(secret), err)
	}
	return sealed
}

// wantUnseals ends the test unless sealed opens to secret.
func (s *subject) wantUnseals(sealed json.RawMessage, secret []byte) {
	s.t.Helper()
	got, err := s.sealer().Unseal(s.ctx(), sealed)
	if err != nil {
		s.t.Fatalf("unseal: %v", err)
	}
	if !bytes.Equal(got, secret) {
		s.t.Fatalf("unseal: got %d bytes that are not the %d sealed", len(got), len(secret))
	}
}

func randomSecret(length int) []byte {
	secret := make([]byte, length)
	rand.Read(secret)
	return secret
}

// testSeal: secrets of every kind of length and content come back as they were,
// beside keys, more of them than the device has slots, and again after reopening.
func testSeal(t *testing.T, h Harness) {
	if !h.Seals {
		return
	}
	s := open(t, h)
	m := s.create(baseline())
	secrets := [][]byte{{0}, {1}, {7, 0}, {0, 7}, make([]byte, keys.MaxSecret), randomSecret(32), randomSecret(keys.MaxSecret)}
	for range h.Slots {
		secrets = append(secrets, randomSecret(48))
	}
	var sealed []json.RawMessage
	for _, secret := range secrets {
		sealed = append(sealed, s.seal(secret))
	}
	s.wantSigns(m)
	for range 2 {
		for i, secret := range secrets {
			s.wantUnseals(sealed[i], secret)
		}
		s.wantSigns(m)
	}
	s.Close()
	s = open(t, h)
	for i, secret := range secrets {
		s.wantUnseals(sealed[i], secret)
	}
	if bytes.Equal(s.seal(secrets[5]), sealed[5]) {
		t.Error("the same secret sealed twice gives the same bytes")
	}
}

func testSealRefuses(t *testing.T, h Harness) {
	if !h.Seals {
		return
	}
	s := open(t, h)
	for _, length := range []int{0, keys.MaxSecret + 1, 1 << 16} {
		sealed, err := s.sealer().Seal(s.ctx(), make([]byte, length))
		wantKind(t, "seal", err, fault.BadRequest)
		if sealed != nil {
			t.Errorf("%d bytes: got something sealed beside the error", length)
		}
	}
	m := s.create(baseline())
	for name, text := range map[string]string{
		"nothing": "", "null": "null", "empty": "{}", "a list": "[]", "text": `"x"`, "a key's material": string(m.Device),
	} {
		secret, err := s.sealer().Unseal(s.ctx(), json.RawMessage(text))
		wantKind(t, name, err, refusals...)
		if secret != nil {
			t.Errorf("%s: got a secret beside the error", name)
		}
	}
	as := m
	as.Device = s.seal(randomSecret(32))
	wantKind(t, "a sealed secret as a key: check", s.Check(s.ctx(), as), refusals...)
	wantKind(t, "a sealed secret as a key: sign", signs(s.ctx(), s, as, keys.TLSClient), refusals...)
	s.wantSigns(m)
}

// testSealOtherDevice: what one device sealed, another one does not open.
func testSealOtherDevice(t *testing.T, h Harness) {
	if !h.Seals {
		return
	}
	s := open(t, h)
	secret := randomSecret(32)
	sealed := s.seal(secret)
	other := h.Other(t)
	defer other.Close()
	if _, err := other.(keys.Sealer).Unseal(s.ctx(), sealed); fault.KindOf(err) != fault.IdentityChanged {
		t.Errorf("on another device: got %s, want %s", describe(err), fault.IdentityChanged)
	}
	s.wantUnseals(sealed, secret)
}

// testSealDamaged: damage is refused by name, or has changed nothing.
func testSealDamaged(t *testing.T, h Harness) {
	if !h.Seals {
		return
	}
	s := open(t, h)
	secret := randomSecret(keys.MaxSecret)
	sealed := s.seal(secret)
	seed := mathrand.Uint64()
	r := mathrand.New(mathrand.NewPCG(seed, 0))
	const total = 400
	refused := 0
	for range total {
		bad := damage(r, sealed)
		got, err := s.sealer().Unseal(s.ctx(), bad)
		switch {
		case err == nil && !bytes.Equal(got, secret):
			t.Errorf("seed %d: %q opens to something else", seed, bad)
		case err != nil && !slices.Contains(refusals, fault.KindOf(err)):
			t.Errorf("seed %d: %q: got %s, want one of %v", seed, bad, describe(err), refusals)
		case err != nil:
			refused++
		}
	}
	if refused < total*8/10 {
		t.Errorf("%d of %d damaged records refused, want most", refused, total)
	}
	s.wantUnseals(sealed, secret)
}

// testSealIsSecret: what is stored does not show the secret.
func testSealIsSecret(t *testing.T, h Harness) {
	if !h.Seals {
		return
	}
	s := open(t, h)
	secret := randomSecret(48)
	text := s.seal(secret)
	_, err := s.sealer().Seal(s.ctx(), bytes.Repeat(secret, 3))
	all := bytes.Join([][]byte{text, []byte(describe(err))}, nil)
	for at := 0; at+6 <= len(secret); at += 6 { // six bytes, for chance and for base64
		part := secret[at : at+6]
		for _, form := range []string{string(part), base64.StdEncoding.EncodeToString(part), hex.EncodeToString(part)} {
			if bytes.Contains(all, []byte(form)) {
				t.Errorf("part of the secret is in what is stored, as %q", form)
			}
		}
	}
}

// testSealWaits: the calls end with their contexts, and work again afterwards.
func testSealWaits(t *testing.T, h Harness) {
	if !h.Seals {
		return
	}
	s := open(t, h)
	secret := randomSecret(32)
	sealed := s.seal(secret)
	calls := map[string]func(context.Context) error{
		"seal":   func(ctx context.Context) error { _, err := s.sealer().Seal(ctx, secret); return err },
		"unseal": func(ctx context.Context) error { _, err := s.sealer().Unseal(ctx, sealed); return err },
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, call := range calls {
		timely(t, name, prompt, func() {
			if err := call(ended); err == nil {
				t.Errorf("%s with a cancelled context: got success", name)
			}
		})
	}
	if h.Stall != nil {
		release := h.Stall(t)
		for name, call := range calls {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			timely(t, name, prompt, func() { wantKind(t, name, call(ctx), fault.Deadline, fault.DeviceWedged) })
			cancel()
		}
		release()
	}
	s.wantUnseals(sealed, secret)
	s.wantUnseals(s.seal(secret), secret)
	s.Close()
	for name, call := range calls {
		var e *fault.Error
		if err := call(s.ctx()); !errors.As(err, &e) {
			t.Errorf("%s after close: got %s, want a refusal", name, describe(err))
		}
	}
}
