package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// MaxFrame is the longest message, in bytes: a card with 25 slots, their
// certificates and keys fits well.
const MaxFrame = 256 << 10

// Write sends v as one message: four bytes of length, big-endian, then that many
// bytes of JSON. It clears its buffers afterwards: a request may hold a PIN.
func Write(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	defer clear(body)
	if len(body) > MaxFrame {
		return fmt.Errorf("message of %d bytes, more than %d", len(body), MaxFrame)
	}
	frame := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...)
	defer clear(frame)
	_, err = w.Write(frame)
	return err
}

// Read reads one message into v, and not a byte more. It rejects a length over
// [MaxFrame] before it allocates memory, and members that v does not have. At the
// end of the stream between messages it returns io.EOF.
func Read(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > MaxFrame {
		return fmt.Errorf("message of %d bytes, more than %d", n, MaxFrame)
	}
	body := make([]byte, n)
	defer clear(body)
	if _, err := io.ReadFull(r, body); err != nil {
		return fmt.Errorf("message: %w", err)
	}
	return strict(body, v)
}
