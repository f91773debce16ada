package card

import "errors"

var errTLV = errors.New("malformed tag, length and value")

// A field is one BER-TLV with a tag of one byte (ISO 7816-4, section 5.2.2).
type field struct {
	tag   byte
	value []byte
}

// fields splits b, whose tags all have one byte and whose lengths at most two
// bytes after the first. The values are parts of b.
func fields(b []byte) ([]field, error) {
	var all []field
	for len(b) > 0 {
		tag := b[0]
		n, rest, err := length(b[1:])
		if err != nil || tag&0x1f == 0x1f || n > len(rest) {
			return nil, errTLV
		}
		all = append(all, field{tag, rest[:n]})
		b = rest[n:]
	}
	return all, nil
}

// length reads a BER length and returns what follows it.
func length(b []byte) (int, []byte, error) {
	switch {
	case len(b) >= 1 && b[0] < 0x80:
		return int(b[0]), b[1:], nil
	case len(b) >= 2 && b[0] == 0x81:
		return int(b[1]), b[2:], nil
	case len(b) >= 3 && b[0] == 0x82:
		return int(b[1])<<8 | int(b[2]), b[3:], nil
	}
	return 0, nil, errTLV
}

// only returns the value of b's first field, which must have the tag.
func only(b []byte, tag byte) ([]byte, error) {
	all, err := fields(b)
	if err != nil || len(all) == 0 || all[0].tag != tag {
		return nil, errTLV
	}
	return all[0].value, nil
}

// inside splits the value of b's first field, which must have the tag.
func inside(b []byte, tag byte) ([]field, error) {
	inner, err := only(b, tag)
	if err != nil {
		return nil, err
	}
	return fields(inner)
}

// tlv lays out one field. Nothing here is longer than 65,535 bytes.
func tlv(tag byte, value []byte) []byte {
	head := []byte{tag, 0x82, byte(len(value) >> 8), byte(len(value))}
	switch n := len(value); {
	case n < 0x80:
		head = []byte{tag, byte(n)}
	case n < 0x100:
		head = []byte{tag, 0x81, byte(n)}
	}
	return append(head, value...)
}
