package message

// A reader takes apart the presentation language of TLS (RFC 8446, section 3).
// After the first read that finds too little, bad stays set and every read
// returns zero values, so that a grammar is checked once, at its end.
type reader struct {
	rest []byte
	bad  bool
}

// bytes takes n bytes, which share the message's memory.
func (r *reader) bytes(n int) []byte {
	if r.bad || n > len(r.rest) {
		r.bad, r.rest = true, nil
		return nil
	}
	taken := r.rest[:n:n]
	r.rest = r.rest[n:]
	return taken
}

// number takes a big-endian number of size bytes.
func (r *reader) number(size int) int {
	n := 0
	for _, b := range r.bytes(size) {
		n = n<<8 | int(b)
	}
	return n
}

// vector takes a vector whose length is a number of size bytes and lies within
// low and high.
func (r *reader) vector(size, low, high int) *reader {
	n := r.number(size)
	if n < low || n > high {
		r.bad = true
	}
	body := r.bytes(n)
	return &reader{rest: body, bad: r.bad}
}

// more reports whether anything is left to read.
func (r *reader) more() bool { return !r.bad && len(r.rest) > 0 }

// done reports whether everything was read and nothing was missing.
func (r *reader) done() bool { return !r.bad && len(r.rest) == 0 }
