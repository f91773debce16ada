package message

import (
	"bytes"
	"testing"
)

// TestCanonical has, for each rule of DER, what keeps and what breaks it.
func TestCanonical(t *testing.T) {
	long := bytes.Repeat([]byte{1}, 0x80)
	nested := tlv(tagSequence)
	for range maxDepth {
		nested = tlv(tagSequence, nested)
	}
	for _, test := range []struct {
		name string
		in   []byte
		want bool
	}{
		{"nothing", nil, true},
		{"integer", []byte{2, 1, 0}, true},
		{"two elements", []byte{2, 1, 0, 2, 1, 1}, true},
		{"half an element", []byte{2, 2, 0}, false},
		{"tag alone", []byte{2}, false},
		{"empty integer", []byte{2, 0}, false},
		{"padded integer", []byte{2, 2, 0, 1}, false},
		{"positive integer that needs the zero", []byte{2, 2, 0, 0x80}, true},
		{"padded negative integer", []byte{2, 2, 0xff, 0x80}, false},
		{"negative integer", []byte{2, 2, 0xff, 0x7f}, true},
		{"true", []byte{1, 1, 0xff}, true},
		{"another true", []byte{1, 1, 1}, false},
		{"long boolean", []byte{1, 2, 0, 0}, false},
		{"bits", []byte{3, 2, 4, 0xf0}, true},
		{"bits in the unused part", []byte{3, 2, 4, 0xf8}, false},
		{"8 unused bits", []byte{3, 2, 8, 0}, false},
		{"no bits", []byte{3, 1, 0}, true},
		{"no bits but unused ones", []byte{3, 1, 1}, false},
		{"bits without a count", []byte{3, 0}, false},
		{"constructed bits", []byte{0x23, 2, 5, 0}, false},
		{"object identifier", []byte{6, 3, 0x55, 4, 3}, true},
		{"object identifier with a padded arc", []byte{6, 3, 0x55, 0x80, 3}, false},
		{"object identifier with an open arc", []byte{6, 2, 0x55, 0x84}, false},
		{"empty object identifier", []byte{6, 0}, false},
		{"primitive sequence", []byte{0x10, 0}, false},
		{"primitive set", []byte{0x11, 0}, false},
		{"sorted set", []byte{0x31, 6, 2, 1, 1, 2, 1, 2}, true},
		{"unsorted set", []byte{0x31, 6, 2, 1, 2, 2, 1, 1}, false},
		{"fault inside a context tag", []byte{0xa0, 3, 1, 1, 1}, false},
		{"long form that is needed", append([]byte{4, 0x81, 0x80}, long...), true},
		{"long form of a short length", []byte{4, 0x81, 1, 0}, false},
		{"long form with a zero byte", append([]byte{4, 0x82, 0, 0x80}, long...), false},
		{"indefinite length", []byte{0x30, 0x80, 0, 0}, false},
		{"length of four bytes", append([]byte{4, 0x84, 0, 0, 0, 0x80}, long...), false},
		{"tag above 30", []byte{0x1f, 1, 0}, false},
		{"too deep", nested, false},
	} {
		if got := canonical(test.in, maxDepth); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}
