package pivcard

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/des"
	"testing"
)

// A session is a host that speaks to a card, directly or through pcscd.
type session struct {
	t        testing.TB
	exchange func([]byte) ([]byte, error)
}

// direct speaks to a card without a reader, and selects its PIV application.
func direct(t testing.TB, c *Card) *session {
	never := make(chan struct{})
	s := &session{t, func(raw []byte) ([]byte, error) {
		answer, _ := c.transmit(raw, never)
		return answer, nil
	}}
	s.want(ok, Select, 4, 0, pivAID[:5]...)
	return s
}

// through speaks to a card by pcscd, and selects its PIV application.
func through(t testing.TB, r *Rig, c *Card) *session {
	t.Helper()
	s := through0(t, r, c)
	s.want(ok, Select, 4, 0, pivAID[:5]...)
	return s
}

// through0 does not select anything.
func through0(t testing.TB, r *Rig, c *Card) *session {
	t.Helper()
	client, err := r.open(r.ReaderOf(c), shareShared)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.close)
	return &session{t, client.transmit}
}

// send sends a short command, and fetches the whole answer.
func (s *session) send(ins Instruction, p1, p2 byte, data ...byte) ([]byte, status) {
	s.t.Helper()
	command := []byte{0, byte(ins), p1, p2}
	for ; len(data) > 255; data = data[255:] {
		if _, sw := s.raw(append([]byte{0x10, byte(ins), p1, p2, 255}, data[:255]...)); sw != ok {
			return nil, sw
		}
	}
	if len(data) > 0 {
		command = append(append(command, byte(len(data))), data...)
	}
	answer, sw := s.raw(command)
	for sw>>8 == 0x61 {
		var more []byte
		more, sw = s.raw([]byte{0, byte(GetResponse), 0, 0, byte(sw)})
		answer = append(answer, more...)
	}
	return answer, sw
}

// raw sends an APDU as it is and splits the answer.
func (s *session) raw(apdu []byte) ([]byte, status) {
	s.t.Helper()
	answer, err := s.exchange(apdu)
	if err != nil {
		s.t.Fatalf("command %x: %v", apdu[1], err)
	}
	if len(answer) < 2 {
		s.t.Fatalf("command %x: an answer of %d bytes", apdu[1], len(answer))
	}
	n := len(answer) - 2
	return answer[:n:n], status(answer[n])<<8 | status(answer[n+1])
}

// want sends a command that has to end with this status.
func (s *session) want(want status, ins Instruction, p1, p2 byte, data ...byte) []byte {
	s.t.Helper()
	answer, sw := s.send(ins, p1, p2, data...)
	if sw != want {
		s.t.Fatalf("%x %02x %02x: status %04x, want %04x", byte(ins), p1, p2, sw, want)
	}
	return answer
}

// verify presents a PIN.
func (s *session) verify(want status, pin string) {
	s.t.Helper()
	p := padded(pin)
	s.want(want, Verify, 0, refPIN, p[:]...)
}

// manage shows a management key, by mutual authentication.
func (s *session) manage(want status, alg byte, key []byte) {
	s.t.Helper()
	block := blockOf(s.t, alg, key)
	witness := s.want(ok, Authenticate, alg, slotManagement, 0x7c, 2, 0x80, 0)[4:]
	plain, challenge := make([]byte, len(witness)), bytes.Repeat([]byte{0x5a}, len(witness))
	block.Decrypt(plain, witness)
	answer := s.want(want, Authenticate, alg, slotManagement, tlv(0x7c, tlv(0x80, plain), tlv(0x81, challenge))...)
	if want != ok {
		return
	}
	block.Encrypt(plain, challenge)
	if !bytes.Equal(answer[4:], plain) {
		s.t.Fatal("the card does not know the management key")
	}
}

func blockOf(t testing.TB, alg byte, key []byte) cipher.Block {
	make := aes.NewCipher
	if alg == algTDES {
		make = des.NewTripleDESCipher
	}
	b, err := make(key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sign lets a slot's key sign.
func (s *session) sign(want status, slot, alg byte, digest []byte) []byte {
	s.t.Helper()
	answer := s.want(want, Authenticate, alg, slot, tlv(0x7c, tlv(0x82), tlv(0x81, digest))...)
	if want != ok {
		return nil
	}
	_, outer, _, err := next(answer)
	if err != nil {
		s.t.Fatal(err)
	}
	_, signature, _, err := next(outer)
	if err != nil {
		s.t.Fatal(err)
	}
	return signature
}
