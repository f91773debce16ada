package pivcard

import (
	"bytes"
	"testing"
)

func pair(a, b string) []byte {
	x, y := padded(a), padded(b)
	return append(x[:], y[:]...)
}

func TestPINTries(t *testing.T) {
	c := NewCard(Options{})
	s := direct(t, c)
	s.want(0x63c3, Verify, 0, refPIN)
	s.verify(0x63c2, "000000")
	s.want(0x63c2, Verify, 0, refPIN)
	s.verify(ok, "123456")
	s.want(ok, Verify, 0, refPIN)
	s.want(ok, Verify, 0xff, refPIN)
	s.want(0x63c3, Verify, 0, refPIN)
	for _, want := range []status{0x63c2, 0x63c1, 0x63c0, blocked, blocked} {
		s.verify(want, "000000")
	}
	s.verify(blocked, "123456")
	s.want(blocked, Verify, 0, refPIN)
	if got := c.PINTries(); got != 8 {
		t.Errorf("%d PIN tries, want 8: asking and logging out are none", got)
	}
	if got := c.Count(Verify); got != 14 {
		t.Errorf("%d VERIFY, want 14", got)
	}
	s.want(wrongData, Verify, 0, refPIN, '1', '2', '3', '4', '5', '6')
	s.want(noReference, Verify, 0, 0x96)
}

// TestVerifiedUntil takes the PIN's verification away in each way there is.
func TestVerifiedUntil(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*Card, *session)
		want bool
	}{
		"nothing":             {func(*Card, *session) {}, true},
		"PIV once more":       {func(_ *Card, s *session) { s.want(ok, Select, 4, 0, pivAID...) }, true},
		"unknown application": {func(_ *Card, s *session) { s.want(notFound, Select, 4, 0, 0xd2, 0x76, 0, 1, 0x24) }, true},
		"another application": {func(_ *Card, s *session) { s.want(ok, Select, 4, 0, managementAID...) }, false},
		"OTP":                 {func(_ *Card, s *session) { s.want(ok, Select, 4, 0, otpAID...) }, false},
		"reset":               {func(c *Card, _ *session) { c.message([]byte{vpcdReset}, nil) }, false},
		"power off":           {func(c *Card, _ *session) { c.message([]byte{vpcdOff}, nil) }, false},
		"wrong PIN":           {func(_ *Card, s *session) { s.verify(0x63c2, "999999") }, false},
	} {
		card := NewCard(Options{})
		s := direct(t, card)
		s.verify(ok, "123456")
		c.end(card, s)
		if got := card.Verified(); got != c.want {
			t.Errorf("%s: verified %v, want %v", name, got, c.want)
		}
	}
}

// TestAskingForgets has the firmware that forgets the PIN when it is asked.
func TestAskingForgets(t *testing.T) {
	s := direct(t, NewCard(Options{Firmware: Firmware{5, 3, 1}}))
	s.verify(ok, "123456")
	s.want(ok, Verify, 0, refPIN)
	s.want(0x63c3, Verify, 0, refPIN)
}

func TestChangeAndUnblock(t *testing.T) {
	c := NewCard(Options{})
	s := direct(t, c)
	s.want(0x63c2, ChangeReference, 0, refPIN, pair("000000", "654321")...)
	s.want(wrongData, ChangeReference, 0, refPIN, pair("123456", "12345")...)
	if c.PINLeft() != 2 {
		t.Errorf("%d tries left, want 2: a bad new PIN costs none", c.PINLeft())
	}
	s.want(ok, ChangeReference, 0, refPIN, pair("123456", "654321")...)
	s.verify(ok, "654321")
	s.want(ok, ChangeReference, 0, refPUK, pair("12345678", "87654321")...)
	c.SetPINLeft(0)
	s.verify(blocked, "654321")
	s.want(0x63c2, ResetRetry, 0, refPIN, pair("12345678", "111111")...)
	s.want(ok, ResetRetry, 0, refPIN, pair("87654321", "111111")...)
	s.verify(ok, "111111")
	s.want(noReference, ResetRetry, 0, refPUK, pair("87654321", "111111")...)
	s.want(noReference, ChangeReference, 0, 0x82, pair("87654321", "111111")...)
	c.SetPUKLeft(0)
	s.want(blocked, ResetRetry, 0, refPIN, pair("87654321", "111111")...)
	if c.PUKLeft() != 0 {
		t.Error("a PUK was tried on a blocked card and unblocked it")
	}
}

func TestSetRetries(t *testing.T) {
	c := NewCard(Options{PIN: "271828", PUK: "31415926"})
	s := direct(t, c)
	s.want(notSatisfied, SetRetries, 5, 4)
	s.verify(ok, "271828")
	s.want(notSatisfied, SetRetries, 5, 4)
	s.manage(ok, algTDES, DefaultManagementKey())
	s.want(wrongParameters, SetRetries, 0, 4)
	s.want(ok, SetRetries, 5, 4)
	if c.PINLeft() != 5 || c.PUKLeft() != 4 {
		t.Errorf("%d and %d tries, want 5 and 4", c.PINLeft(), c.PUKLeft())
	}
	s.verify(ok, "123456")
	s.want(ok, SetRetries, 255, 4)
	s.want(ok, Verify, 0xff, refPIN)
	s.want(0x63cf, Verify, 0, refPIN)
}

func TestReset(t *testing.T) {
	c := NewCard(Options{PIN: "271828", Manage: bytes.Repeat([]byte{9}, 32)})
	s := direct(t, c)
	c.SetKey(0x9a, Key{Algorithm: P256})
	device, certificate := c.Public(SlotAttestation), c.Object(ObjectAttestation)
	c.SetPINLeft(0)
	s.want(notAllowed, Reset, 0, 0)
	c.SetPUKLeft(0)
	s.want(ok, Reset, 0, 0)
	s.verify(ok, "123456")
	s.manage(ok, algTDES, DefaultManagementKey())
	if c.Public(0x9a) != nil {
		t.Error("the key in 9a is still there")
	}
	if c.Public(SlotAttestation) != device || !bytes.Equal(c.Object(ObjectAttestation), certificate) {
		t.Error("the attestation key is not what it was")
	}
}

// TestPrivateObjects reads what only the holder of the PIN may read.
func TestPrivateObjects(t *testing.T) {
	c := NewCard(Options{})
	s := direct(t, c)
	ask := tlv(0x5c, []byte{0x5f, 0xc1, 0x09})
	c.SetObject(ObjectPrinted, []byte("secret"))
	s.want(notSatisfied, GetData, 0x3f, 0xff, ask...)
	s.verify(ok, "123456")
	if got := s.want(ok, GetData, 0x3f, 0xff, ask...); !bytes.Equal(got, tlv(0x53, []byte("secret"))) {
		t.Errorf("printed information %x", got)
	}
	c.SetObject(ObjectPrinted, nil)
	s.want(notFound, GetData, 0x3f, 0xff, ask...)
}
