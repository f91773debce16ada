package card

import (
	"bytes"
	"testing"
)

func TestFields(t *testing.T) {
	for name, b := range map[string][]byte{
		"one":   tlv(0x53, []byte("value")),
		"empty": tlv(0x80, nil),
		"127":   tlv(0x70, make([]byte, 127)),
		"128":   tlv(0x70, make([]byte, 128)),
		"255":   tlv(0x70, make([]byte, 255)),
		"256":   tlv(0x70, make([]byte, 256)),
		"3000":  tlv(0x70, bytes.Repeat([]byte{7}, 3000)),
	} {
		all, err := fields(b)
		if err != nil || len(all) != 1 || !bytes.Equal(tlv(all[0].tag, all[0].value), b) {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
	}
	for name, b := range map[string][]byte{
		"tag alone":       {0x53},
		"too short":       {0x53, 2, 0},
		"long tag":        {0x5f, 0x2f, 0},
		"half a length":   {0x53, 0x82, 1},
		"three bytes":     {0x53, 0x83, 0, 0, 0},
		"no end":          {0x53, 0x80, 0, 0},
		"second is short": {0x53, 1, 0, 0x70},
	} {
		if all, err := fields(b); err == nil {
			t.Errorf("%s: %+v", name, all)
		}
	}
	if _, err := only(tlv(0x53, nil), 0x7c); err == nil {
		t.Error("another tag was taken")
	}
}

// seeds adds each to the corpus, and fails when there are none.
func seeds(f *testing.F, all ...[]byte) {
	f.Helper()
	if len(all) == 0 {
		f.Fatal("no seeds")
	}
	for _, b := range all {
		f.Add(b)
	}
}

func FuzzFields(f *testing.F) {
	seeds(f, tlv(0x53, tlv(0x70, []byte("certificate"))), []byte{0x53, 0x82, 0xff, 0xff}, bytes.Repeat([]byte{0}, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := fields(b)
		if err != nil {
			return
		}
		total := 0
		for _, x := range all {
			total += 2 + len(x.value)
		}
		if total > len(b) {
			t.Errorf("%d bytes became %d", len(b), total)
		}
	})
}

func FuzzMetadata(f *testing.F) {
	seeds(f, []byte{1, 1, 0xff, 5, 1, 1, 6, 2, 3, 2}, []byte{1, 1, 3, 2, 2, 0, 1, 5, 1, 0}, []byte{6, 1, 3}, []byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMetadata(b)
		if err != nil && (m.factory != nil || m.tries != nil || m.algorithm != 0) {
			t.Errorf("%+v with %v", m, err)
		}
		if m.tries != nil && (*m.tries < 0 || *m.tries > 255) {
			t.Errorf("%d tries", *m.tries)
		}
	})
}

func FuzzProtected(f *testing.F) {
	key := bytes.Repeat([]byte{9}, 24)
	seeds(f, tlv(0x88, tlv(0x89, key)), tlv(0x88, append(tlv(0x89, key), tlv(0x8a, key)...)), tlv(0x80, tlv(0x81, []byte{2})), []byte{0x88, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, kept := range parseProtected(b) {
			if n := len(kept); n != 16 && n != 24 && n != 32 || !bytes.Contains(b, kept) {
				t.Errorf("a key of %d bytes", n)
			}
		}
		if keepsManagement(b) && !bytes.Contains(b, []byte{tagAdminFlags}) {
			t.Error("a flag that is not there")
		}
	})
}

func TestMetadata(t *testing.T) {
	m, err := parseMetadata([]byte{1, 1, 0xff, 5, 1, 1, 6, 2, 3, 2})
	if err != nil || m.factory == nil || !*m.factory || m.tries == nil || *m.tries != 2 {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := parseMetadata([]byte{1, 1, 0x0a, 2, 2, 0, 1, 5, 1, 0, 9, 0}); err != nil || m.algorithm != algAES192 || *m.factory || m.tries != nil {
		t.Errorf("%+v, %v", m, err)
	}
	for _, b := range [][]byte{{5, 0}, {5, 2, 1, 1}, {6, 1, 3}, {1, 0}, {1}} {
		if m, err := parseMetadata(b); err == nil {
			t.Errorf("%x: %+v", b, m)
		}
	}
}

func TestProtected(t *testing.T) {
	old, next := bytes.Repeat([]byte{1}, 24), bytes.Repeat([]byte{2}, 32)
	kept := parseProtected(tlv(0x88, append(append(tlv(0x89, old), tlv(0x81, []byte{1})...), tlv(0x8a, next)...)))
	if len(kept) != 2 || !bytes.Equal(kept[0], old) || !bytes.Equal(kept[1], next) {
		t.Errorf("%x", kept)
	}
	for _, b := range [][]byte{nil, {0x88, 0}, tlv(0x88, tlv(0x89, old[:8])), tlv(0x53, old), {0x88, 9, 0x89}} {
		if kept := parseProtected(b); len(kept) != 0 {
			t.Errorf("%x holds %x", b, kept)
		}
	}
	for want, b := range map[bool][]byte{true: adminKeeps(), false: tlv(0x80, tlv(0x81, []byte{1}))} {
		if keepsManagement(b) != want {
			t.Errorf("%x: %v", b, !want)
		}
	}
}
