package varlink

import (
	"bytes"
	"encoding/json"
	"io"
)

// smallBuffer is what an idle connection keeps. Nearly every request to the agent
// fits into it.
const smallBuffer = 2 << 10

// framer cuts a stream into messages at NUL bytes. Its buffer grows in steps
// while a message arrives, never past the limit, and shrinks when it is taken.
type framer struct {
	from    io.Reader
	share   share // covers buf, and the message that was taken until settle
	buf     []byte
	n       int // bytes of buf that are filled
	scanned int // bytes of buf known to hold no NUL
}

// fill reads once. It reports errTooLong when a message has reached the limit
// and has no end, and ErrBusy when the buffer may not grow now.
func (f *framer) fill() error {
	if f.n == len(f.buf) {
		if f.n > MaxMessage {
			return errTooLong
		}
		size := min(max(4*f.n, smallBuffer), MaxMessage+1)
		if err := f.share.cover(size); err != nil {
			return err
		}
		f.resize(size)
	}
	return f.fillFree()
}

// fillFree reads once into the free part of the buffer, which must not be empty.
func (f *framer) fillFree() error {
	n, err := f.from.Read(f.buf[f.n:])
	f.n += n
	if n > 0 {
		return nil
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

// empty reports whether no byte of a next message has arrived.
func (f *framer) empty() bool { return f.n == 0 }

// foreign reports whether what has arrived of a next message begins like no message.
func (f *framer) foreign() bool { return f.n > 0 && f.buf[0] != '{' }

// frame returns the first message in the buffer without its NUL byte, and false
// while it is not whole. The message is valid until drop.
func (f *framer) frame() ([]byte, bool) {
	i := bytes.IndexByte(f.buf[f.scanned:f.n], 0)
	if i < 0 {
		f.scanned = f.n
		return nil, false
	}
	f.scanned += i
	return f.buf[:f.scanned], true
}

// drop removes the message that frame returned, and frees a buffer that grew. Its
// share stays until settle: the message may have been copied.
func (f *framer) drop() {
	rest := f.buf[f.scanned+1 : f.n]
	f.n, f.scanned = len(rest), 0
	if len(f.buf) > smallBuffer && len(rest) <= smallBuffer {
		f.buf = append(make([]byte, 0, smallBuffer), rest...)[:smallBuffer]
		return
	}
	copy(f.buf, rest)
}

// settle gives back the share of dropped messages.
func (f *framer) settle() { f.share.shrink(len(f.buf)) }

// resize moves the bytes that were read into a buffer of another size.
func (f *framer) resize(size int) {
	grown := make([]byte, size)
	copy(grown, f.buf[:f.n])
	f.buf = grown
}

// encode returns the message with its NUL byte, ready for one write.
func encode(message outgoing) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(message); err != nil {
		return nil, err
	}
	if b.Len()-1 > MaxMessage {
		return nil, errTooLong
	}
	frame := b.Bytes()
	frame[len(frame)-1] = 0 // Encode ends its output with a newline
	return frame, nil
}
