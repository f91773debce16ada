package attestation_test

import (
	"slices"
	"strings"
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/attestation"
)

func TestParseFirmware(t *testing.T) {
	for s, want := range map[string]attestation.Firmware{
		"0.0.0": {}, "5.4.3": {Major: 5, Minor: 4, Patch: 3}, "4.10.2": {Major: 4, Minor: 10, Patch: 2},
		"255.255.255": {Major: 255, Minor: 255, Patch: 255},
	} {
		if got, err := attestation.ParseFirmware(s); got != want || err != nil || got.String() != s {
			t.Errorf("%q: got %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "5", "5.4", "5.4.", ".5.4", "5..4", "5.4.3.2", "5.4.3 ", " 5.4.3", "5.4.-3", "5.+4.3", "5.04.3", "00.4.3", "256.4.3", "5.4.3\n",
		"5.4.x", "5,4,3", "0x5.4.3", "5.4.1_0", "5.4.99999999999999999999", strings.Repeat("1.", 1<<16),
	} {
		if got, err := attestation.ParseFirmware(s); fault.KindOf(err) != fault.BadRequest || got != (attestation.Firmware{}) {
			t.Errorf("%.20q: got %+v, %v", s, got, err)
		}
	}
}

func TestFirmwareLess(t *testing.T) {
	ordered := []string{"0.0.0", "0.0.255", "0.1.0", "4.2.6", "4.3.4", "4.3.10", "4.10.1", "5.0.0", "5.7.0", "10.0.0"}
	for i, a := range ordered {
		for j, b := range ordered {
			x, err1 := attestation.ParseFirmware(a)
			y, err2 := attestation.ParseFirmware(b)
			if err1 != nil || err2 != nil || x.Less(y) != (i < j) {
				t.Errorf("%s less than %s: got %v, %v, %v", a, b, x.Less(y), err1, err2)
			}
		}
	}
}

// The first and the last version of each range, and their neighbours.
func TestWarnings(t *testing.T) {
	const roca, fips, eucleak = "YSA-2017-01", "YSA-2019-02", "YSA-2024-03"
	for _, c := range []struct {
		firmware string
		rsa, ec  []string
	}{
		{"3.5.0", nil, []string{eucleak}},
		{"4.2.5", nil, []string{eucleak}},
		{"4.2.6", []string{roca}, []string{eucleak}},
		{"4.3.0", []string{roca}, []string{eucleak}},
		{"4.3.4", []string{roca}, []string{eucleak}},
		{"4.3.5", nil, []string{eucleak}},
		{"4.4.1", nil, []string{eucleak}},
		{"4.4.2", nil, []string{fips, eucleak}},
		{"4.4.4", nil, []string{fips, eucleak}},
		{"4.4.5", nil, []string{eucleak}},
		{"5.4.3", nil, []string{eucleak}},
		{"5.6.255", nil, []string{eucleak}},
		{"5.7.0", nil, nil},
		{"5.7.4", nil, nil},
	} {
		for algorithm, want := range map[keys.Algorithm][]string{
			keys.RS256: c.rsa, keys.ES256: c.ec, keys.ES384: c.ec, "": slices.Concat(c.rsa, c.ec),
		} {
			var got []string
			for _, note := range attestation.Warnings(c.firmware, algorithm) {
				got = append(got, note.Advisory)
				if note.Weak != (note.Advisory != eucleak) {
					t.Errorf("%s: weak %v", note.Advisory, note.Weak)
				}
				if !strings.Contains(note.Message, "firmware "+c.firmware+" ") || !strings.Contains(note.Message, note.Advisory) || note.Hint == "" {
					t.Errorf("%s: %q, hint %q", note.Advisory, note.Message, note.Hint)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, %q: got %v, want %v", c.firmware, algorithm, got, want)
			}
		}
	}
}

// A firmware that is not a version gets a note.
func TestWarningsOfNoVersion(t *testing.T) {
	for _, firmware := range []string{"", "5.7", "five"} {
		notes := attestation.Warnings(firmware, keys.ES256)
		if len(notes) != 1 || notes[0].Weak || notes[0].Advisory != "" || !strings.Contains(notes[0].Message, "not compared") || notes[0].Hint == "" {
			t.Errorf("%q: got %+v", firmware, notes)
		}
	}
}
