package pivcard

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"math/big"
	"testing"
)

var digest = sha256.Sum256([]byte("text"))

// signedBy reports whether signature is of digest by the public key.
func signedBy(public crypto.PublicKey, signature []byte) bool {
	switch p := public.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(p, digest[:], signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(p, crypto.SHA256, digest[:], signature) == nil
	}
	return false
}

// block is what a key of the algorithm signs for digest: itself, or with the
// padding of PKCS #1.
func block(alg byte) []byte {
	if rsaBits[alg] == 0 {
		return digest[:]
	}
	info := append([]byte{0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00, 0x04, 0x20}, digest[:]...)
	b := make([]byte, rsaBits[alg]/8)
	for i := range b {
		b[i] = 0xff
	}
	b[0], b[1], b[len(b)-len(info)-1] = 0, 1, 0
	copy(b[len(b)-len(info):], info)
	return b
}

func template(alg, pin, touch byte) []byte {
	return tlv(0xac, tlv(tagAlgorithm, []byte{alg}), tlv(tagPINPolicy, []byte{pin}), tlv(tagTouchPolicy, []byte{touch}))
}

// TestGenerate makes and uses a key of each algorithm, and of none that the
// firmware lacks.
func TestGenerate(t *testing.T) {
	for _, c := range []struct {
		firmware Firmware
		alg      byte
		want     status
	}{
		{Firmware{5, 4, 3}, P256, ok}, {Firmware{5, 4, 3}, P384, ok}, {Firmware{5, 4, 3}, RSA2048, ok},
		{Firmware{5, 4, 3}, RSA3072, wrongData}, {Firmware{5, 4, 3}, RSA4096, wrongData},
		{Firmware{5, 7, 1}, RSA3072, ok}, {Firmware{5, 4, 3}, 0x22, wrongData},
	} {
		card := NewCard(Options{Firmware: c.firmware})
		s := direct(t, card)
		s.want(notSatisfied, Generate, 0, 0x9e, template(c.alg, 0, 0)...)
		s.manage(ok, card.manage.alg, DefaultManagementKey())
		s.want(wrongData, Generate, 0, 0x96, template(c.alg, 0, 0)...)
		answer := s.want(c.want, Generate, 0, 0x9e, template(c.alg, 0, 0)...)
		if c.want != ok {
			continue
		}
		if public := card.Public(0x9e); string(answer) != string(tlv(0x7f49, encoded(public))) {
			t.Errorf("algorithm %x: another key is in the slot than was told", c.alg)
		} else if !signedBy(public, s.sign(ok, 0x9e, c.alg, block(c.alg))) {
			t.Errorf("algorithm %x: the signature does not verify", c.alg)
		}
		s.sign(wrongData, 0x9e, c.alg, make([]byte, 600))
		s.sign(wrongParameters, 0x9e, 0x03, digest[:])
		s.sign(noReference, 0x9a, c.alg, digest[:])
	}
}

// TestPINPolicies uses a key of each policy three times: before the PIN, after
// it, and once more.
func TestPINPolicies(t *testing.T) {
	for _, c := range []struct {
		slot, pin byte
		want      [3]status
	}{
		{0x9a, 0, [3]status{notSatisfied, ok, ok}},
		{0x9c, 0, [3]status{notSatisfied, ok, notSatisfied}},
		{0x9e, 0, [3]status{ok, ok, ok}},
		{0x82, PINNever, [3]status{ok, ok, ok}},
		{0x95, PINOnce, [3]status{notSatisfied, ok, ok}},
		{0x9a, PINAlways, [3]status{notSatisfied, ok, notSatisfied}},
	} {
		card := NewCard(Options{})
		card.SetKey(c.slot, Key{Algorithm: P256, PIN: c.pin})
		s := direct(t, card)
		for i, want := range c.want {
			if i == 1 {
				s.verify(ok, "123456")
			}
			if _, got := s.send(Authenticate, P256, c.slot, tlv(0x7c, tlv(0x82), tlv(0x81, digest[:]))...); got != want {
				t.Errorf("slot %x, policy %d, use %d: status %04x, want %04x", c.slot, c.pin, i, got, want)
			}
		}
	}
}

func TestAgree(t *testing.T) {
	card := NewCard(Options{})
	public := card.SetKey(0x9d, Key{Algorithm: P384, PIN: PINNever}).(*ecdsa.PublicKey)
	s := direct(t, card)
	mine := newKey(P384).(*ecdsa.PrivateKey)
	point := encoded(mine.Public())[2:]
	answer := s.want(ok, Authenticate, P384, 0x9d, tlv(0x7c, tlv(0x82), tlv(0x85, point))...)
	own, err := mine.ECDH()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := public.ECDH()
	if err != nil {
		t.Fatal(err)
	}
	want, err := own.ECDH(theirs)
	if err != nil || string(answer[4:]) != string(want) {
		t.Errorf("the card agrees on %x, want %x, %v", answer, want, err)
	}
	s.want(wrongData, Authenticate, P384, 0x9d, tlv(0x7c, tlv(0x82), tlv(0x85, point[1:]))...)
}

// TestImport imports a key of each kind. The card uses it and says what it is.
func TestImport(t *testing.T) {
	ec := newKey(P256).(*ecdsa.PrivateKey)
	scalar, err := ec.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	rsa2048 := newKey(RSA2048).(*rsa.PrivateKey)
	pre := rsa2048.Precomputed
	var parts []byte
	for i, n := range []*big.Int{rsa2048.Primes[0], rsa2048.Primes[1], pre.Dp, pre.Dq, pre.Qinv} {
		parts = append(parts, tlv(uint32(i+1), n.FillBytes(make([]byte, 128)))...)
	}
	for _, c := range []struct {
		alg   byte
		parts []byte
		want  crypto.PublicKey
	}{{P256, tlv(6, scalar), ec.Public()}, {RSA2048, parts, rsa2048.Public()}} {
		card := NewCard(Options{})
		s := direct(t, card)
		s.want(notSatisfied, ImportKey, c.alg, 0x9e, c.parts...)
		s.manage(ok, algTDES, DefaultManagementKey())
		s.want(wrongData, ImportKey, c.alg, 0x9e, c.parts[:len(c.parts)/2]...)
		s.want(wrongData, ImportKey, P384, 0x9e, c.parts...)
		s.want(ok, ImportKey, c.alg, 0x9e, c.parts...)
		if !signedBy(c.want, s.sign(ok, 0x9e, c.alg, block(c.alg))) {
			t.Errorf("algorithm %x: the signature does not verify", c.alg)
		}
		s.want(wrongData, Attest, 0x9e, 0)
		got, err := fields(s.want(ok, GetMetadata, 0, 0x9e))
		if err != nil || got[metaOrigin][0] != 2 {
			t.Errorf("algorithm %x: metadata %x, %v, want imported", c.alg, got, err)
		}
	}
}

func TestMoveKey(t *testing.T) {
	old := direct(t, NewCard(Options{}))
	old.want(noInstruction, MoveKey, 0xff, 0x9a)

	card := NewCard(Options{Firmware: Firmware{5, 7, 0}})
	public := card.SetKey(0x9a, Key{Algorithm: P256})
	s := direct(t, card)
	s.want(notSatisfied, MoveKey, 0x82, 0x9a)
	s.manage(ok, algAES192, DefaultManagementKey())
	s.want(wrongParameters, MoveKey, SlotAttestation, 0x9a)
	s.want(noReference, MoveKey, 0x82, 0x9c)
	s.want(ok, MoveKey, 0x82, 0x9a)
	if card.Public(0x82) != public || card.Public(0x9a) != nil {
		t.Error("the key has not moved to 82")
	}
	s.want(ok, MoveKey, 0xff, 0x82)
	if card.Public(0x82) != nil {
		t.Error("the key is still there")
	}
}

func TestSetKey(t *testing.T) {
	card := NewCard(Options{})
	mine := newKey(RSA1024)
	if got := card.SetKey(0x9a, Key{Private: mine, Imported: true}); got != mine.Public() {
		t.Error("another key is in the slot")
	}
	answer := direct(t, card).want(ok, GetMetadata, 0, 0x9a)
	got, err := fields(answer)
	if err != nil || string(got[metaAlgorithm]) != string([]byte{RSA1024}) || string(got[metaPolicy]) != string([]byte{PINOnce, TouchNever}) {
		t.Errorf("metadata %x, %v", got, err)
	}
}

// TestRaw compares the card's own RSA with the standard library's.
func TestRaw(t *testing.T) {
	k := newKey(RSA2048).(*rsa.PrivateKey)
	want, err := rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	if got, s := raw(k, block(RSA2048)); s != ok || string(got) != string(want) {
		t.Errorf("status %04x, signature %x, want %x", s, got, want)
	}
	if _, s := raw(k, k.N.Bytes()); s != wrongData {
		t.Errorf("a block as large as the modulus: status %04x", s)
	}
}
