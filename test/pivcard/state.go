package pivcard

import "bytes"

// SetPINLeft sets how many wrong PINs the card still takes: 0 blocks it.
func (c *Card) SetPINLeft(n int) { c.setLeft(&c.pin, n) }

// SetPUKLeft sets how many wrong PUKs the card still takes: 0 blocks it.
func (c *Card) SetPUKLeft(n int) { c.setLeft(&c.puk, n) }

// ClaimPINLeft makes the PIN's metadata say that so many tries are left, whatever is so.
func (c *Card) ClaimPINLeft(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pin.claimed = n
}

func (c *Card) setLeft(s *secret, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.left, s.tries = n, max(s.tries, n)
}

// PINLeft returns how many wrong PINs the card still takes.
func (c *Card) PINLeft() int { return c.leftOf(&c.pin) }

// PUKLeft returns how many wrong PUKs the card still takes.
func (c *Card) PUKLeft() int { return c.leftOf(&c.puk) }

func (c *Card) leftOf(s *secret) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.left
}

// Verified reports whether the card has seen its PIN and not forgotten it.
func (c *Card) Verified() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verified
}

// Object returns a data object as it was stored, without its tag 53; nil when
// there is none.
func (c *Card) Object(tag uint32) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Clone(c.objects[tag])
}

// SetObject stores a data object, whatever its content; nil removes it.
func (c *Card) SetObject(tag uint32, value []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if value == nil {
		delete(c.objects, tag)
		return
	}
	c.objects[tag] = bytes.Clone(value)
}
