package pivcard

import (
	"bytes"
	"encoding/hex"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestParse has one command of each case of ISO 7816-4, 5.1.
func TestParse(t *testing.T) {
	for _, c := range []struct{ apdu, data string }{
		{"00fd0000", ""},
		{"00fd000000", ""},
		{"0020008003313233", "313233"},
		{"002000800331323300", "313233"},
		{"00fd0000000000", ""},
		{"00db3fff000002aabb", "aabb"},
		{"00db3fff000002aabb0000", "aabb"},
	} {
		got, err := parse(unhex(t, c.apdu))
		if err != nil || !bytes.Equal(got.data, unhex(t, c.data)) {
			t.Errorf("%s: data %x, %v, want %s", c.apdu, got.data, err, c.data)
		}
		if want := len(c.apdu) > 10 && c.apdu[8:10] == "00"; got.extended != want {
			t.Errorf("%s: extended %v, want %v", c.apdu, got.extended, want)
		}
	}
	for _, bad := range []string{"", "00", "00fd00", "00200080033132", "0020008003313233ffff", "00db3fff0000", "00db3fff000003aabb"} {
		if got, err := parse(unhex(t, bad)); err == nil {
			t.Errorf("%q is taken for %+v", bad, got)
		}
	}
}

func TestTLV(t *testing.T) {
	for tag, first := range map[uint32]string{0x53: "53", 0x7f49: "7f49", 0x5fc105: "5fc105"} {
		for n, length := range map[int]string{0: "00", 127: "7f", 128: "8180", 255: "81ff", 256: "820100"} {
			value := bytes.Repeat([]byte{1}, n)
			b := tlv(tag, value)
			if !bytes.HasPrefix(b, unhex(t, first+length)) {
				t.Errorf("tag %x, %d bytes: %x", tag, n, b[:min(len(b), 6)])
			}
			gotTag, got, rest, err := next(append(b, 0xee))
			if err != nil || gotTag != tag || !bytes.Equal(got, value) || !bytes.Equal(rest, []byte{0xee}) {
				t.Errorf("tag %x, %d bytes: read %x, %d bytes, rest %x, %v", tag, n, gotTag, len(got), rest, err)
			}
		}
	}
	for _, bad := range []string{"", "53", "5302aa", "5381", "538201", "5f", "5fc1", "5fc1858501", "5380aa", "5383000001aa"} {
		if tag, value, _, err := next(unhex(t, bad)); err == nil {
			t.Errorf("%q is taken for tag %x with %x", bad, tag, value)
		}
	}
}

// TestLongAnswer fetches an object of many sizes in short pieces and at once.
func TestLongAnswer(t *testing.T) {
	c := NewCard(Options{})
	s := direct(t, c)
	for _, n := range []int{1, 251, 252, 253, 254, 507, 508, 509, 3000} {
		want := bytes.Repeat([]byte{byte(n)}, n)
		c.SetObject(0x5fc105, want)
		ask := tlv(0x5c, []byte{0x5f, 0xc1, 0x05})
		if got := s.want(ok, GetData, 0x3f, 0xff, ask...); !bytes.Equal(got, tlv(0x53, want)) {
			t.Errorf("%d bytes come as %d in pieces", n, len(got))
		}
		if piece, _ := s.raw(append([]byte{0, byte(GetData), 0x3f, 0xff, byte(len(ask))}, ask...)); len(piece) > maxReply {
			t.Errorf("%d bytes come in a piece of %d", n, len(piece))
		}
		extended := append([]byte{0, byte(GetData), 0x3f, 0xff, 0, 0, byte(len(ask))}, ask...)
		if got, sw := s.raw(append(extended, 0, 0)); sw != ok || !bytes.Equal(got, tlv(0x53, want)) {
			t.Errorf("%d bytes come as %d at once, status %04x", n, len(got), sw)
		}
	}
	s.want(notAllowed, GetResponse, 0, 0)
}

func TestChaining(t *testing.T) {
	c := NewCard(Options{})
	s := direct(t, c)
	s.manage(ok, algTDES, DefaultManagementKey())
	want := bytes.Repeat([]byte{7}, 2000)
	s.want(ok, PutData, 0x3f, 0xff, append(tlv(0x5c, []byte{0x5f, 0xc1, 0x0a}), tlv(0x53, want)...)...)
	if got := c.Object(0x5fc10a); !bytes.Equal(got, want) {
		t.Errorf("%d bytes were sent, %d are stored", len(want), len(got))
	}
	// Another command ends a chain: what follows is no part of it.
	s.raw(append([]byte{0x10, byte(PutData), 0x3f, 0xff, 4}, 0x5c, 0x03, 0x5f, 0xc1))
	s.want(ok, GetData, 0x3f, 0xff, tlv(0x5c, []byte{objectDiscovery})...)
	s.want(wrongData, PutData, 0x3f, 0xff, 0x0a, 0x53, 0x00)
	for range maxData / 255 {
		s.raw(append([]byte{0x10, byte(PutData), 0x3f, 0xff, 255}, make([]byte, 255)...))
	}
	if _, sw := s.raw(append([]byte{0x10, byte(PutData), 0x3f, 0xff, 255}, make([]byte, 255)...)); sw != noSpace {
		t.Errorf("a chain without end: status %04x, want %04x", sw, noSpace)
	}
}

func FuzzParse(f *testing.F) {
	seed(f, "00a4040005a000000308", "00fd0000", "00db3fff000002aabb0000", "0020008003313233", "10db3fff01aa")
	f.Fuzz(func(t *testing.T, b []byte) {
		cmd, err := parse(b)
		if err == nil && len(cmd.data) > len(b)-4 {
			t.Errorf("%x: %d bytes of data", b, len(cmd.data))
		}
	})
}

func FuzzTLV(f *testing.F) {
	seed(f, "7c02820081200102", "5c035fc105", "53820100", "7f4943864104", "5fff0100")
	f.Fuzz(func(t *testing.T, b []byte) {
		tag, value, rest, err := next(b)
		if err != nil {
			return
		}
		if again := append(tlv(tag, value), rest...); len(again) > len(b) {
			t.Errorf("%x reads as tag %x, %x and %x", b, tag, value, rest)
		}
	})
}

// FuzzCard plays sessions: each command is one byte of length and an APDU. No
// session may crash the card or get less than a status.
func FuzzCard(f *testing.F) {
	const sel, pin = "0a00a4040005a000000308", "0d0020008008313233343536ffff"
	seed(f, sel+pin, sel+"0a0087039b047c028100", pin+"0a0047009a05ac03800111", "0a0047009a05ac03800114"+"0500f9009a00",
		"0500f7008000"+"0500f7009b00", "0800ff"+"ffff03039b00", "0a00fe119a0506030102030405", "0500c0000000", "0600fa0303"+"0500fb0000",
		"0a1024008005"+"31323334350a00240080053132333435", "0a00cb3fff055c035fc105", "0700cb3fff025c7e")
	maker := NewAuthority("fuzz")
	f.Fuzz(func(t *testing.T, b []byte) {
		c := NewCard(Options{Maker: maker, TouchTimeout: 1})
		direct(t, c)
		c.managing = true
		for len(b) > 0 {
			n := min(int(b[0]), len(b)-1)
			answer, _ := c.transmit(b[1:1+n], nil)
			if len(answer) < 2 {
				t.Fatalf("%x is answered %x", b[1:1+n], answer)
			}
			b = b[1+n:]
		}
	})
}

// seed adds seeds, of which there must be some.
func seed(f *testing.F, all ...string) {
	f.Helper()
	if len(all) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range all {
		f.Add(unhex(f, s))
	}
}
