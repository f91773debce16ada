package keystest

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// withPINs fills in the PINs of a device that takes any.
func (h Harness) withPINs() Harness {
	if h.PIN == "" {
		h.PIN, h.WrongPIN = "correct horse", "battery staple"
	}
	return h
}

// withPIN is the baseline's template with the harness's PIN.
func (s *subject) withPIN() keys.Template { return withPIN(s.h.PIN) }

// unlocked opens a backend and makes a key with a PIN, unlocked for d.
func unlocked(t *testing.T, h Harness, d time.Duration) (*subject, keys.Material, time.Time) {
	t.Helper()
	s := open(t, h)
	m := s.create(s.withPIN())
	until := time.Now().Add(d)
	s.unlock(m, until)
	return s, m, until
}

func (s *subject) unlock(m keys.Material, until time.Time) {
	s.t.Helper()
	if err := s.Unlock(s.ctx(), m, []byte(s.h.PIN), until); err != nil {
		s.t.Fatalf("unlock: %v", err)
	}
}

func (s *subject) wantLocked(what string, m keys.Material) {
	s.t.Helper()
	wantKind(s.t, what, signs(s.ctx(), s, m, keys.TLSClient), fault.PINRequired)
}

func testPIN(t *testing.T, h Harness) {
	s := open(t, h)
	if h.WrongPINs == 0 {
		_, err := s.Create(s.ctx(), s.withPIN())
		wantKind(t, "a PIN on a device that cannot", err, fault.Unsupported)
		return
	}
	for _, c := range h.Can {
		template := s.withPIN()
		template.Algorithm, template.RSABits = c.Algorithm, c.RSABits
		m := s.create(template)
		if !m.PIN {
			t.Errorf("%s: the material does not say that it has a PIN", c.Algorithm)
		}
		if err := s.Check(s.ctx(), m); err != nil {
			t.Errorf("%s: check: %v", c.Algorithm, err)
		}
		s.wantLocked("before unlock", m)
		s.unlock(m, time.Now().Add(time.Hour))
		for range 3 {
			s.wantSigns(m)
		}
	}
	if err := s.Unlock(s.ctx(), s.create(baseline()), []byte(h.PIN), time.Now().Add(time.Hour)); err == nil {
		t.Error("a key without PIN was unlocked")
	}
}

func testPINExpires(t *testing.T, h Harness) {
	if h.WrongPINs == 0 {
		return
	}
	s, m, until := unlocked(t, h, 500*time.Millisecond)
	if err := signs(s.ctx(), s, m, keys.TLSClient); err != nil && time.Now().Before(until) {
		t.Errorf("before the time: %v", err)
	}
	<-time.After(time.Until(until))
	s.wantLocked("after the time", m)
	s.unlock(m, time.Now().Add(time.Hour))
	s.wantSigns(m)
	wantKind(t, "a time in the past", s.Unlock(s.ctx(), m, []byte(h.PIN), time.Now().Add(-time.Second)), fault.BadRequest)
}

func testPINLock(t *testing.T, h Harness) {
	if h.WrongPINs == 0 {
		return
	}
	s, a, _ := unlocked(t, h, time.Hour)
	b := s.create(s.withPIN())
	s.unlock(b, time.Now().Add(time.Hour))
	s.Lock(&a)
	s.wantLocked("the locked key", a)
	s.wantSigns(b)
	s.unlock(a, time.Now().Add(time.Hour))
	s.Lock(nil)
	s.wantLocked("all locked, the first", a)
	s.wantLocked("all locked, the second", b)
	free := s.create(baseline())
	s.Lock(&free)
	s.wantSigns(free)
	s.unlock(a, time.Now().Add(time.Hour))
	s.Close()
	s = open(t, h)
	s.wantLocked("after close and open", a)
}

// testPINWrong: wrong tries are refused before the device locks, keys without a
// PIN still sign, and the right PIN in time is accepted.
func testPINWrong(t *testing.T, h Harness) {
	if h.WrongPINs == 0 {
		return
	}
	s := open(t, h)
	m, free := s.create(s.withPIN()), s.create(baseline())
	hour := time.Now().Add(time.Hour)
	wrong := func() error { return s.Unlock(s.ctx(), m, []byte(h.WrongPIN), hour) }
	wantKind(t, "first wrong PIN", wrong(), fault.PINRequired)
	s.wantLocked("after a wrong PIN", m)
	if h.WrongPINs > 1 {
		s.unlock(m, hour)
		s.wantSigns(m)
		wantKind(t, "a wrong PIN while unlocked", wrong(), fault.PINRequired)
	}
	var last error
	for range h.WrongPINs + 1 {
		last = wrong()
	}
	wantKind(t, "one wrong PIN too many", last, fault.PINBlocked)
	wantKind(t, "the next", wrong(), fault.PINBlocked)
	s.wantSigns(free)
	for name, pin := range map[string]string{"empty": "", "too long": h.PIN + h.PIN + h.PIN, "zero byte": "12\x0034"} {
		wantKind(t, name, s.Unlock(s.ctx(), m, []byte(pin), hour), fault.BadRequest, fault.PINBlocked)
	}
}

// testPINIsNotKept: nothing that is stored, returned or exported holds the PIN.
func testPINIsNotKept(t *testing.T, h Harness) {
	if h.WrongPINs == 0 {
		return
	}
	s, m, _ := unlocked(t, h, time.Hour)
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	file, err := s.Export(m)
	if err != nil {
		t.Fatal(err)
	}
	status, err := json.Marshal(s.Status(s.ctx()))
	if err != nil {
		t.Fatal(err)
	}
	wrong := s.Unlock(s.ctx(), m, []byte(h.WrongPIN), time.Now().Add(time.Hour))
	all := bytes.Join([][]byte{text, file, status, []byte(describe(wrong))}, nil)
	for _, pin := range []string{h.PIN, h.WrongPIN} {
		for _, form := range []string{pin, base64.StdEncoding.EncodeToString([]byte(pin)), hex.EncodeToString([]byte(pin))} {
			if bytes.Contains(all, []byte(form)) {
				t.Errorf("a PIN is in material, file, status or error as %q", form)
			}
		}
	}
}

// testPINOfAnotherKey: a PIN opens its own key and no other.
func testPINOfAnotherKey(t *testing.T, h Harness) {
	if h.WrongPINs == 0 {
		return
	}
	s, a, _ := unlocked(t, h, time.Hour)
	if h.SharedPIN {
		sharedPIN(s, a)
		return
	}
	b := s.create(withPIN(h.WrongPIN))
	s.wantLocked("another key", b)
	wantKind(t, "the first key's PIN", s.Unlock(s.ctx(), b, []byte(h.PIN), time.Now().Add(time.Hour)), fault.PINRequired)
	s.wantSigns(a)
}

// sharedPIN: one PIN opens every key of the device, each by itself. A wrong PIN
// for one may lock the others: what was right before is in doubt then.
func sharedPIN(s *subject, a keys.Material) {
	s.t.Helper()
	b := s.create(s.withPIN())
	s.wantLocked("another key of the same device", b)
	wantKind(s.t, "a wrong PIN", s.Unlock(s.ctx(), b, []byte(s.h.WrongPIN), time.Now().Add(time.Hour)), fault.PINRequired)
	s.wantLocked("after a wrong PIN", b)
	if err := signs(s.ctx(), s, a, keys.TLSClient); err != nil {
		wantKind(s.t, "the unlocked key after a wrong PIN for another", err, fault.PINRequired)
		s.unlock(a, time.Now().Add(time.Hour))
	}
	s.wantLocked("when the first is unlocked", b)
	s.unlock(b, time.Now().Add(time.Hour))
	s.wantSigns(b)
	s.wantSigns(a)
}
