package message

import "bytes"

// The tags of X.690, section 8, that have a canonical content to check, and
// those that PKCS #10 is made of.
const (
	tagBoolean     = 0x01
	tagInteger     = 0x02
	tagBitString   = 0x03
	tagOID         = 0x06
	tagSequence    = 0x30
	tagSet         = 0x31
	tagAttributes  = 0xa0 // [0] IMPLICIT
	tagConstructed = 0x20
)

// maxDepth bounds nesting; a certificate request needs 8.
const maxDepth = 16

// element takes the first DER element off the input: its tag, its whole encoding
// and its content. Tags above 30 and lengths that are indefinite, longer than
// necessary or 16 MiB and above are rejected (X.690, section 10.1).
func element(in []byte) (tag byte, whole, body, rest []byte, ok bool) {
	r := &reader{rest: in}
	tag = byte(r.number(1))
	n := r.number(1)
	if n >= 0x80 {
		size := n & 0x7f
		if size < 1 || size > 3 {
			return 0, nil, nil, nil, false
		}
		n = r.number(size)
		if n < 0x80 || n>>(8*(size-1)) == 0 {
			return 0, nil, nil, nil, false
		}
	}
	body = r.bytes(n)
	if r.bad || tag&0x1f == 0x1f {
		return 0, nil, nil, nil, false
	}
	return tag, in[:len(in)-len(r.rest)], body, r.rest, true
}

// expect takes an element of the given tag off the front of *in.
func expect(in *[]byte, want byte) (whole, body []byte, ok bool) {
	tag, whole, body, rest, ok := element(*in)
	if !ok || tag != want {
		return nil, nil, false
	}
	*in = rest
	return whole, body, true
}

// canonical reports whether in is a series of DER elements, with nothing in them
// that DER encodes in another way (X.690, sections 8, 10 and 11). It does not
// check the content of octet strings, nor the order within implicitly tagged sets.
func canonical(in []byte, depth int) bool {
	for len(in) > 0 {
		tag, _, body, rest, ok := element(in)
		if !ok || depth == 0 || !canonicalElement(tag, body, depth-1) {
			return false
		}
		in = rest
	}
	return true
}

func canonicalElement(tag byte, body []byte, depth int) bool {
	constructed := tag&tagConstructed != 0
	number := tag & 0x1f
	if universal := tag&0xc0 == 0; universal && constructed != (number == tagSequence&0x1f || number == tagSet&0x1f) {
		return false
	}
	switch tag {
	case tagBoolean:
		return len(body) == 1 && (body[0] == 0 || body[0] == 0xff)
	case tagInteger:
		return shortestInteger(body)
	case tagBitString:
		return cleanBits(body)
	case tagOID:
		return shortestOID(body)
	case tagSet:
		return sorted(body) && canonical(body, depth)
	}
	return !constructed || canonical(body, depth)
}

// shortestInteger is X.690, section 8.3.2.
func shortestInteger(body []byte) bool {
	if len(body) < 2 {
		return len(body) == 1
	}
	return !(body[0] == 0 && body[1] < 0x80 || body[0] == 0xff && body[1] >= 0x80)
}

// cleanBits is X.690, section 11.2.1: unused bits are zero.
func cleanBits(body []byte) bool {
	if len(body) == 0 || body[0] > 7 || len(body) == 1 && body[0] != 0 {
		return false
	}
	return body[len(body)-1]&(1<<body[0]-1) == 0 || len(body) == 1
}

// shortestOID is X.690, section 8.19.2: no arc starts with a zero byte of its
// base 128, and the last one ends.
func shortestOID(body []byte) bool {
	start := true
	for _, b := range body {
		if start && b == 0x80 {
			return false
		}
		start = b < 0x80
	}
	return len(body) > 0 && start
}

// sorted is X.690, section 11.6: the members of a set ascend.
func sorted(in []byte) bool {
	var last []byte
	for len(in) > 0 {
		_, whole, _, rest, ok := element(in)
		if !ok || bytes.Compare(last, whole) > 0 {
			return false
		}
		last, in = whole, rest
	}
	return true
}
