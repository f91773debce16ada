package pivcard

import (
	"bytes"
)

const pinSize = 8 // a PIN or PUK as it is sent: padded with ff

// A secret is the PIN or the PUK.
type secret struct {
	value       [pinSize]byte
	factory     [pinSize]byte
	left, tries int
	claimed     int // tries left by the metadata; 0 where they are honest
}

func newSecret(value, factory string) secret {
	s := secret{factory: padded(factory), left: 3, tries: 3}
	s.value = s.factory
	if value != "" {
		s.value = padded(value)
	}
	return s
}

func padded(s string) (p [pinSize]byte) {
	copy(p[:], bytes.Repeat([]byte{0xff}, pinSize))
	copy(p[:], s)
	return p
}

// present compares and counts. The try that uses up the counter is answered
// 63C0, those that follow 6983.
func (s *secret) present(value []byte) status {
	if s.left == 0 {
		return blocked
	}
	if !bytes.Equal(value, s.value[:]) {
		s.left--
		return s.remaining()
	}
	s.left = s.tries
	return ok
}

// remaining has four bits for the tries, and none is 63C0 here.
func (s *secret) remaining() status { return wrongPIN | status(min(s.left, 15)) }

func (s *secret) set(value []byte) { copy(s.value[:], value); s.left = s.tries }

func (s *secret) isDefault() bool { return s.value == s.factory }

// acceptable is what a YubiKey asks of a new PIN or PUK: six to eight bytes,
// then padding.
func acceptable(value []byte) bool {
	n := len(bytes.TrimRight(value, "\xff"))
	return len(value) == pinSize && n >= 6 && bytes.IndexByte(value[:n], 0xff) < 0
}

const (
	refPIN = 0x80
	refPUK = 0x81
)

// verify is VERIFY (SP 800-73-4 part 2, 3.2.1). Without data it asks whether
// the PIN is verified; P1 ff takes the verification back.
func (c *Card) verify(cmd command) ([]byte, status) {
	switch {
	case cmd.p2 != refPIN:
		return nil, noReference
	case cmd.p1 == 0xff && len(cmd.data) == 0:
		c.verified, c.fresh = false, false
		return nil, ok
	case cmd.p1 != 0:
		return nil, wrongParameters
	case len(cmd.data) == 0:
		return nil, c.verification()
	case len(cmd.data) != pinSize:
		return nil, wrongData
	}
	s := c.pin.present(cmd.data)
	c.verified, c.fresh = s == ok, s == ok
	return nil, s
}

// verification answers an empty VERIFY. Firmware 5.3.1 forgets the PIN when it
// is asked.
func (c *Card) verification() status {
	verified := c.verified
	if c.Firmware == (Firmware{5, 3, 1}) {
		c.verified, c.fresh = false, false
	}
	switch {
	case verified:
		return ok
	case c.pin.left == 0:
		return blocked
	}
	return c.pin.remaining()
}

// changeReference is CHANGE REFERENCE DATA (SP 800-73-4 part 2, 3.2.2).
func (c *Card) changeReference(cmd command) ([]byte, status) {
	s := map[byte]*secret{refPIN: &c.pin, refPUK: &c.puk}[cmd.p2]
	if s == nil || cmd.p1 != 0 {
		return nil, noReference
	}
	return nil, c.replace(s, s, cmd.data)
}

// resetRetry is RESET RETRY COUNTER (SP 800-73-4 part 2, 3.2.3).
func (c *Card) resetRetry(cmd command) ([]byte, status) {
	if cmd.p1 != 0 || cmd.p2 != refPIN {
		return nil, noReference
	}
	return nil, c.replace(&c.puk, &c.pin, cmd.data)
}

// replace sets target to the second half of data when the first is known's.
func (c *Card) replace(known, target *secret, data []byte) status {
	if len(data) != 2*pinSize || !acceptable(data[pinSize:]) {
		return wrongData
	}
	s := known.present(data[:pinSize])
	if s == ok {
		target.set(data[pinSize:])
	}
	if s != ok && known == &c.pin || known == &c.puk && target == &c.pin {
		c.verified, c.fresh = false, false
	}
	return s
}

// setRetries is SET PIN RETRIES: new limits, and both values as from the factory.
func (c *Card) setRetries(cmd command) ([]byte, status) {
	switch {
	case !c.managing || !c.verified:
		return nil, notSatisfied
	case cmd.p1 == 0 || cmd.p2 == 0:
		return nil, wrongParameters
	}
	c.pin.tries, c.puk.tries = int(cmd.p1), int(cmd.p2)
	c.pin.set(c.pin.factory[:])
	c.puk.set(c.puk.factory[:])
	return nil, ok
}

// reset is RESET: allowed when PIN and PUK are both blocked. The attestation
// key and its certificate stay.
func (c *Card) reset(command) ([]byte, status) {
	if c.pin.left > 0 || c.puk.left > 0 {
		return nil, notAllowed
	}
	kept, certificate := c.keys[SlotAttestation], c.objects[ObjectAttestation]
	c.factory(Options{})
	c.keys[SlotAttestation], c.objects[ObjectAttestation] = kept, certificate
	return nil, ok
}
