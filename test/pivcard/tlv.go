package pivcard

import "errors"

var errTLV = errors.New("malformed tag, length and value")

// next splits the first BER-TLV (ISO 7816-4, 5.2.2) off b. Tags of up to three
// bytes and lengths of up to two are known; PIV has no others.
func next(b []byte) (tag uint32, value, rest []byte, err error) {
	if len(b) == 0 {
		return 0, nil, nil, errTLV
	}
	tag, b = uint32(b[0]), b[1:]
	for more := tag&0x1f == 0x1f; more; {
		if len(b) == 0 || tag > 0xffff {
			return 0, nil, nil, errTLV
		}
		more = b[0]&0x80 != 0
		tag, b = tag<<8|uint32(b[0]), b[1:]
	}
	n, b, err := length(b)
	if err != nil || n > len(b) {
		return 0, nil, nil, errTLV
	}
	return tag, b[:n], b[n:], nil
}

// length reads a BER length and returns what follows it.
func length(b []byte) (int, []byte, error) {
	if len(b) == 0 {
		return 0, nil, errTLV
	}
	switch first := b[0]; {
	case first < 0x80:
		return int(first), b[1:], nil
	case first == 0x81 && len(b) > 1:
		return int(b[1]), b[2:], nil
	case first == 0x82 && len(b) > 2:
		return int(b[1])<<8 | int(b[2]), b[3:], nil
	}
	return 0, nil, errTLV
}

// fields splits b into its TLVs. A tag that comes twice keeps its last value.
func fields(b []byte) (map[uint32][]byte, error) {
	all := map[uint32][]byte{}
	for len(b) > 0 {
		tag, value, rest, err := next(b)
		if err != nil {
			return nil, err
		}
		all[tag], b = value, rest
	}
	return all, nil
}

// tlv lays out one tag with the parts of its value. No value here is longer
// than 65,535 bytes: the card takes no longer command.
func tlv(tag uint32, parts ...[]byte) []byte {
	var value, out []byte
	for _, p := range parts {
		value = append(value, p...)
	}
	for shift := 16; shift >= 0; shift -= 8 {
		if b := byte(tag >> shift); b != 0 || len(out) > 0 {
			out = append(out, b)
		}
	}
	switch n := len(value); {
	case n < 0x80:
		out = append(out, byte(n))
	case n < 0x100:
		out = append(out, 0x81, byte(n))
	default:
		out = append(out, 0x82, byte(n>>8), byte(n))
	}
	return append(out, value...)
}
