package tpm

import (
	"encoding/binary"
	"fmt"
)

// A cursor reads a reply field by field. After the first missing field it yields
// zeros, and end returns the error.
type cursor struct {
	rest []byte
	bad  bool
}

// take returns the next n bytes, which alias the reply.
func (c *cursor) take(n int) []byte {
	if c.bad || n > len(c.rest) {
		c.bad = true
		return nil
	}
	field := c.rest[:n:n]
	c.rest = c.rest[n:]
	return field
}

func (c *cursor) u8() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// sized returns a field that is preceded by its length, such as a TPM2B.
func (c *cursor) sized() []byte { return c.take(int(c.u16())) }

// end returns an error for a missing field or bytes left over.
func (c *cursor) end() error {
	if c.bad {
		return fmt.Errorf("%w: it ends too early", errMalformed)
	}
	if len(c.rest) != 0 {
		return fmt.Errorf("%w: %d bytes too many", errMalformed, len(c.rest))
	}
	return nil
}
