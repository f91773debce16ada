package pivcard

import (
	"bytes"
	"testing"
)

func TestFirmware(t *testing.T) {
	f, err := ParseFirmware("5.4.3")
	if err != nil || f != (Firmware{5, 4, 3}) || f.String() != "5.4.3" {
		t.Errorf("%v, %v", f, err)
	}
	for _, bad := range []string{"", "5", "5.4", "5.4.3.2", "5.4.256", "5.x.3", "5.4.-1"} {
		if f, err := ParseFirmware(bad); err == nil {
			t.Errorf("%q is taken for %v", bad, f)
		}
	}
	for _, other := range []Firmware{{4, 9, 9}, {5, 3, 9}, {5, 4, 2}, {5, 4, 3}} {
		if !f.AtLeast(other) {
			t.Errorf("%v is older than %v", f, other)
		}
	}
	for _, other := range []Firmware{{6, 0, 0}, {5, 5, 0}, {5, 4, 4}} {
		if f.AtLeast(other) {
			t.Errorf("%v is as new as %v", f, other)
		}
	}
}

// TestInstructionsOfFirmware asks old cards for what they lack.
func TestInstructionsOfFirmware(t *testing.T) {
	for _, c := range []struct {
		firmware                 Firmware
		serial, metadata, attest status
	}{
		{Firmware{4, 2, 6}, noInstruction, noInstruction, noInstruction},
		{Firmware{4, 3, 4}, noInstruction, noInstruction, wrongData},
		{Firmware{5, 2, 7}, ok, noInstruction, wrongData},
		{Firmware{5, 4, 3}, ok, ok, wrongData},
	} {
		s := direct(t, NewCard(Options{Firmware: c.firmware}))
		s.want(c.serial, GetSerial, 0, 0)
		s.want(c.metadata, GetMetadata, 0, refPIN)
		s.want(c.attest, Attest, 0x9a, 0)
		if got := s.want(ok, GetVersion, 0, 0); !bytes.Equal(got, c.firmware[:]) {
			t.Errorf("version %x, want %v", got, c.firmware)
		}
	}
}

// TestSerial asks for the serial number in all three ways there are.
func TestSerial(t *testing.T) {
	s := direct(t, NewCard(Options{Serial: 0x01020304}))
	want := []byte{1, 2, 3, 4}
	if got := s.want(ok, GetSerial, 0, 0); !bytes.Equal(got, want) {
		t.Errorf("PIV: serial %x", got)
	}
	s.want(ok, Select, 4, 0, otpAID...)
	if got := s.want(ok, otpRequest, 0x10, 0); !bytes.Equal(got, want) {
		t.Errorf("OTP: serial %x", got)
	}
	s.want(wrongParameters, otpRequest, 0x11, 0)
	s.want(noInstruction, GetVersion, 0, 0)
	greeting := s.want(ok, Select, 4, 0, managementAID...)
	if want := "Virtual mgr - FW version 5.4.3"; string(greeting) != want {
		t.Errorf("management: %q, want %q", greeting, want)
	}
	config, err := fields(s.want(ok, readConfig, 0, 0)[1:])
	if err != nil || !bytes.Equal(config[0x02], want) || config[0x04][0] != formFactor || !bytes.Equal(config[0x05], []byte{5, 4, 3}) {
		t.Errorf("configuration %x, %v", config, err)
	}
}

func TestSelect(t *testing.T) {
	c := NewCard(Options{})
	s := direct(t, c)
	want := []byte{0x61, 0x11, 0x4f, 6, 0, 0, 0x10, 0, 1, 0, 0x79, 7, 0x4f, 5, 0xa0, 0, 0, 3, 8}
	if got := s.want(ok, Select, 4, 0, pivAID...); !bytes.Equal(got, want) {
		t.Errorf("property template %x, want %x", got, want)
	}
	s.want(wrongParameters, Select, 0, 0, pivAID...)
	s.want(notFound, Select, 4, 0, 0xa0)
	s.want(ok, GetVersion, 0, 0)
	c.message([]byte{vpcdReset}, nil)
	s.want(noInstruction, GetVersion, 0, 0)

	none := NewCard(Options{NotPIV: true})
	answer, _ := none.transmit(append([]byte{0, 0xa4, 4, 0, 5}, pivAID[:5]...), nil)
	if !bytes.Equal(answer, notFound.bytes()) {
		t.Errorf("a card without PIV answers %x", answer)
	}
}

func TestObjects(t *testing.T) {
	s := direct(t, NewCard(Options{}))
	chuid := tlv(0x5c, []byte{0x5f, 0xc1, 0x02})
	s.want(notFound, GetData, 0x3f, 0xff, chuid...)
	s.want(notSatisfied, PutData, 0x3f, 0xff, append(chuid, tlv(0x53, []byte{1})...)...)
	s.manage(ok, algTDES, DefaultManagementKey())
	s.want(ok, PutData, 0x3f, 0xff, append(chuid, tlv(0x53, []byte{1})...)...)
	if got := s.want(ok, GetData, 0x3f, 0xff, chuid...); !bytes.Equal(got, []byte{0x53, 1, 1}) {
		t.Errorf("CHUID %x", got)
	}
	s.want(ok, PutData, 0x3f, 0xff, append(chuid, tlv(0x53)...)...)
	s.want(notFound, GetData, 0x3f, 0xff, chuid...)
	s.want(noSpace, PutData, 0x3f, 0xff, append(chuid, tlv(0x53, make([]byte, maxObject+1))...)...)
	s.want(wrongData, PutData, 0x3f, 0xff, append(tlv(0x5c, []byte{0x7e}), tlv(0x53, []byte{1})...)...)
	s.want(wrongParameters, GetData, 0, 0, chuid...)
	s.want(wrongData, GetData, 0x3f, 0xff, 0x5d, 0)
	if got := s.want(ok, GetData, 0x3f, 0xff, tlv(0x5c, []byte{0x7e})...); !bytes.HasPrefix(got, []byte{0x7e, 0x12, 0x4f, 0x0b}) {
		t.Errorf("discovery object %x", got)
	}
}

func TestClassAndLength(t *testing.T) {
	s := direct(t, NewCard(Options{}))
	for apdu, want := range map[string]status{"80fd0000": noClass, "002000800831": wrongLength, "00": wrongLength, "00010000": noInstruction} {
		if _, got := s.raw(unhex(t, apdu)); got != want {
			t.Errorf("%s: status %04x, want %04x", apdu, got, want)
		}
	}
}

func TestJournal(t *testing.T) {
	c := NewCard(Options{})
	s := direct(t, c)
	c.Forget()
	s.verify(ok, "123456")
	s.want(ok, GetVersion, 0, 0)
	s.want(ok, GetVersion, 0, 0)
	want := []Command{{0, Verify, 0, 0x80, 8}, {0, GetVersion, 0, 0, 0}, {0, GetVersion, 0, 0, 0}}
	got := c.Commands()
	for i := range want {
		if len(got) != len(want) || got[i] != want[i] {
			t.Fatalf("commands %+v, want %+v", got, want)
		}
	}
	if n := c.Counts(); len(n) != 2 || n[Verify] != 1 || n[GetVersion] != 2 {
		t.Errorf("counts %v", n)
	}
}
