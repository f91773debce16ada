package attestation_test

import (
	"bytes"
	"crypto/x509"
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/attestation"
)

// An accepted statement has values of package keys, and agrees with its certificate.
func FuzzParseStatement(f *testing.F) {
	seeds := 0
	for _, s := range samples() {
		slot, f9, _ := s.read(f)
		f.Add(slot)
		f.Add(f9)
		seeds++
	}
	f.Add(newScene(f).card.state(f))
	if seeds == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, der []byte) {
		s, err := attestation.ParseStatement(der)
		if err != nil {
			if fault.KindOf(err) != fault.BadRequest {
				t.Errorf("got %v, want bad-request", err)
			}
			return
		}
		if _, err := keys.ParseSlot(s.Slot); err != nil {
			t.Errorf("slot %q: %v", s.Slot, err)
		}
		if _, err := x509.ParsePKIXPublicKey(s.Public); err != nil {
			t.Errorf("public key: %v", err)
		}
		if s.PINPolicy == "" || s.TouchPolicy == "" || s.Root != "" || s.Serial == 0 && s.Firmware.Major >= 5 {
			t.Errorf("got %+v", s)
		}
	})
}

// Nothing but a statement that a YubiKey made is accepted.
func FuzzVerify(f *testing.F) {
	type pair struct{ slot, f9 []byte }
	var genuine []pair
	var want []attestation.Expected
	for _, s := range samples() {
		slot, f9, expected := s.read(f)
		genuine, want = append(genuine, pair{slot, f9}), append(want, expected)
		f.Add(slot, f9)
	}
	if len(genuine) == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, slot, f9 []byte) {
		for i, p := range genuine {
			_, err := attestation.Verify(slot, f9, attestation.Genuine(), want[i])
			if same := bytes.Equal(slot, p.slot) && bytes.Equal(f9, p.f9); same != (err == nil) {
				t.Errorf("the same as sample %d: %v, but got %v", i, same, err)
			}
		}
	})
}

func FuzzWith(f *testing.F) {
	s := newScene(f)
	seeds := [][]byte{s.root.pem(), append([]byte("# ours\n"), bytes.Repeat(s.root.pem(), 2)...), []byte("-----BEGIN CERTIFICATE-----")}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		if _, err := attestation.Genuine().With(file); err != nil && fault.KindOf(err) != fault.BadRequest {
			t.Errorf("got %v, want bad-request", err)
		}
	})
}

// A version that is read is written back the same.
func FuzzParseFirmware(f *testing.F) {
	seeds := []string{"5.4.3", "0.0.0", "255.255.255", "4.10.2", "5.4", "05.4.3"}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := attestation.ParseFirmware(s)
		if err == nil && v.String() != s {
			t.Errorf("%q was read as %s", s, v)
		}
		if err != nil && fault.KindOf(err) != fault.BadRequest {
			t.Errorf("%q: got %v, want bad-request", s, err)
		}
		if v.Less(v) {
			t.Errorf("%s is older than itself", v)
		}
	})
}
