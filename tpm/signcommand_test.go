package tpm

import (
	"bytes"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"math/big"
	"testing"

	"github.com/google/go-tpm/tpm2"
)

// A recorder is a go-tpm transport that keeps the command and answers nothing.
type recorder struct{ command []byte }

func (r *recorder) Send(command []byte) ([]byte, error) {
	r.command = bytes.Clone(command)
	return nil, errors.New("recorded")
}

// goTPMSign is TPM2_Sign as go-tpm lays it out.
func goTPMSign(handle tpm2.TPMHandle, name []byte, auth tpm2.Session, su suite, digest []byte) []byte {
	scheme := tpm2.TPMTSigScheme{Scheme: su.alg, Details: tpm2.NewTPMUSigScheme(su.alg, &tpm2.TPMSSchemeHash{HashAlg: su.hash})}
	var r recorder
	_, _ = tpm2.Sign{
		KeyHandle:  tpm2.AuthHandle{Handle: handle, Name: tpm2.TPM2BName{Buffer: name}, Auth: auth},
		Digest:     tpm2.TPM2BDigest{Buffer: digest},
		InScheme:   scheme,
		Validation: tpm2.TPMTTKHashCheck{Tag: tpm2.TPMSTHashCheck, Hierarchy: tpm2.TPMRHNull},
	}.Execute(&r)
	return r.command
}

// TestSignBytes holds the hand-made command to go-tpm's, byte for byte.
func TestSignBytes(t *testing.T) {
	name := append([]byte{0, 0x0b}, bytes.Repeat([]byte{7}, 32)...)
	for _, su := range suites() {
		digest := bytes.Repeat([]byte{0x5a}, su.scheme.Hash().Size())
		for _, handle := range []tpm2.TPMHandle{0x80000000, 0x81008000, 0x80ffffff} {
			got := appendSign(nil, handle, nil, nil, su, digest)
			want := goTPMSign(handle, name, tpm2.PasswordAuth(nil), su, digest)
			if !bytes.Equal(got, want) {
				t.Errorf("%s, password: got\n%x, want\n%x", su.scheme, got, want)
			}
			s := &session{handle: 0x02000001, key: []byte("session key"), attrs: continueSession, nonceTPM: bytes.Repeat([]byte{9}, 32)}
			want = goTPMSign(handle, name, s, su, digest) // makes the nonce of the command
			if got = appendSign(nil, handle, name, s, su, digest); !bytes.Equal(got, want) {
				t.Errorf("%s, session: got\n%x, want\n%x", su.scheme, got, want)
			}
		}
	}
}

// ecdsaReply is a good reply to TPM2_Sign, with r and s of one byte.
const ecdsaReply = "8002" + "00000021" + "00000000" + "0000000a" + "0018000b" + "000105" + "000107" + "0000" + "01" + "0000"

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	b[5] = byte(len(b))
	return b
}

func TestParseSignReply(t *testing.T) {
	su := suites()[0]
	parse := func(reply []byte) ([]byte, error) {
		r, err := parseSignReply(reply)
		if err != nil {
			return nil, err
		}
		if err := r.checkPassword(); err != nil {
			return nil, err
		}
		return parseSignature(r.parameters, su)
	}
	good := unhex(t, ecdsaReply)
	got, err := parse(good)
	if want := []byte{0x30, 6, 2, 1, 5, 2, 1, 7}; err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %x, %v, want %x", got, err, want)
	}
	for n := headerSize; n < len(good); n++ {
		if _, err := parse(good[:n]); err == nil {
			t.Errorf("the first %d bytes were taken for a reply", n)
		}
	}
	if _, err := parse(append(bytes.Clone(good), 0)); err == nil {
		t.Error("a reply with a byte too many was taken")
	}
	for _, at := range []int{13, 14, 15, 16, 17, 19, 22, 25, 26, 28} { // sizes, algorithms, authorisation
		bad := bytes.Clone(good)
		bad[at] ^= 0x40
		if _, err := parse(bad); err == nil {
			t.Errorf("a reply with byte %d changed was taken", at)
		}
	}
}

func TestECDSADER(t *testing.T) {
	full := bytes.Repeat([]byte{0xff}, maxInteger)
	for _, c := range [][2][]byte{
		{{1}, {2}}, {{0x80}, {0x7f}}, {{0, 0, 1}, {0, 0x80}}, {full, full}, {{}, {0}}, {full[:32], full[:31]},
	} {
		got, err := ecdsaDER(c[0], c[1])
		if err != nil {
			t.Fatal(err)
		}
		want, err := asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(c[0]), new(big.Int).SetBytes(c[1])})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("got %x, want %x", got, want)
		}
	}
	if _, err := ecdsaDER(append(full, 1), full); err == nil {
		t.Error("an integer longer than the curve was taken")
	}
}

func FuzzSignReply(f *testing.F) {
	seeds := [][]byte{unhex(f, ecdsaReply), unhex(f, "8002000000000000000000000000000a0014000b0004aabbccdd0000010000")}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, reply []byte) {
		if len(reply) < headerSize {
			return
		}
		r, err := parseSignReply(reply)
		if err != nil {
			return
		}
		for _, su := range suites() {
			signature, err := parseSignature(r.parameters, su)
			if err == nil && (len(signature) == 0 || len(signature) > maxRSA) {
				t.Errorf("got a signature of %d bytes", len(signature))
			}
		}
	})
}

func BenchmarkSignCommand(b *testing.B) {
	su, digest := suites()[0], sha256.Sum256(nil)
	b.Run("by hand", func(b *testing.B) {
		b.ReportAllocs()
		var room [256]byte
		for b.Loop() {
			appendSign(room[:0], 0x80000000, nil, nil, su, digest[:])
		}
	})
	b.Run("go-tpm", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			goTPMSign(0x80000000, nil, tpm2.PasswordAuth(nil), su, digest[:])
		}
	})
}

func BenchmarkSignReply(b *testing.B) {
	b.ReportAllocs()
	reply, su := unhex(b, ecdsaReply), suites()[0]
	for b.Loop() {
		r, err := parseSignReply(reply)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := parseSignature(r.parameters, su); err != nil {
			b.Fatal(err)
		}
	}
}
