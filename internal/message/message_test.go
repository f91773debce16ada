package message

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/pace"
)

// TestOnlyOwnKind gives every kind of message to every parser: its own takes it,
// the others know it for what it is.
func TestOnlyOwnKind(t *testing.T) {
	for _, s := range samples(t) {
		if kind, ok := Classify(s.message); kind != s.kind || !ok {
			t.Errorf("%s: Classify = %s, %v", s.name, kind, ok)
		}
		for _, kind := range kinds {
			err := s.parse(kind)
			if kind == s.kind && err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
			if kind != s.kind && fault.KindOf(err) != fault.WrongPurpose {
				t.Errorf("%s as %s: got %v, want wrong-purpose", s.name, kind, err)
			}
		}
	}
}

// TestNoDigest pins the promise of the wire: no digest is signed, and who sends
// one is told.
func TestNoDigest(t *testing.T) {
	public := sampleOf(t, CSR).public
	for _, size := range []int{16, 20, 28, 32, 36, 48, 64} {
		for _, fill := range []byte{0, ' ', '0', 1, 0xa5} {
			s := sample{scheme: keys.ECDSAP256SHA256, public: public, message: bytes.Repeat([]byte{fill}, size)}
			for _, kind := range kinds {
				checkRefusal(t, string(kind), s.parse(kind), "a digest")
			}
		}
	}
}

// TestForeign gives the parsers what other protocols sign.
func TestForeign(t *testing.T) {
	public := sampleOf(t, CSR).public
	sum := sha256.Sum256(public)
	encode := base64.RawURLEncoding.EncodeToString
	jwt := encode([]byte(`{"alg":"ES256","typ":"JWT"}`)) + "." + encode([]byte(`{"iss":"https://example.com","sub":"system:serviceaccount:default:a"}`))
	for name, msg := range map[string]string{
		"nothing":             "",
		"zero byte":           "\x00",
		"JWS input":           jwt,
		"long JWS input":      jwt + strings.Repeat("A", 1000),
		"AWS string to sign":  "AWS4-X509-ECDSA-SHA256\n20260101T000000Z\n20260101/eu-west-1/rolesanywhere/aws4_request\n" + hex.EncodeToString(sum[:]),
		"SSH signature":       "SSHSIG\x00\x00\x00\x03git\x00\x00\x00\x00\x00\x00\x00\x06sha512\x00\x00\x00\x40" + strings.Repeat("h", 64),
		"SSH authentication":  "\x00\x00\x00\x20" + string(sum[:]) + "\x32\x00\x00\x00\x04root\x00\x00\x00\x0essh-connection",
		"git commit":          "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor A <a@example.com> 0 +0000\n\nx\n",
		"DigestInfo":          "\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20" + string(sum[:]),
		"SubjectPublicKey":    string(public),
		"zeroes":              strings.Repeat("\x00", 4096),
		"spaces":              strings.Repeat(" ", 130),
		"more than the limit": strings.Repeat("\x01", MaxSize+1),
	} {
		s := sample{scheme: keys.ECDSAP256SHA256, public: public, message: []byte(msg)}
		if kind, ok := Classify(s.message); ok {
			t.Errorf("%s: Classify = %s", name, kind)
		}
		for _, kind := range kinds {
			checkRefusal(t, name, s.parse(kind), "message")
		}
	}
}

// TestSchemes pins which signature schemes TLS messages are signed with.
func TestSchemes(t *testing.T) {
	for _, s := range samples(t) {
		if s.kind == CSR {
			continue
		}
		for _, scheme := range []keys.Scheme{"", "rsa_pkcs1_sha1", "ecdsa_sha1", "ecdsa_secp521r1_sha512", "ed25519", "rsa_pss_pss_sha256", keys.RSAPKCS1SHA256} {
			s.scheme = scheme
			checkRefusal(t, s.name, s.parse(s.kind), "are not signed with")
		}
	}
}

// TestErrorsKeepQuiet pins that no refusal repeats the message.
func TestErrorsKeepQuiet(t *testing.T) {
	const secret = "correct horse battery staple"
	for _, s := range samples(t) {
		for _, kind := range kinds {
			err := s.with(append([]byte(secret), s.message...)).parse(kind)
			if err == nil || strings.Contains(err.Error(), "horse") {
				t.Errorf("%s as %s: %v", s.name, kind, err)
			}
		}
	}
}

// mutants is how many changed messages TestMutants tries (figure G5 of the
// project's goals: no wrong-purpose signature in 10^5).
const mutants = 120_000

// TestMutants changes good messages at random. Whatever becomes of one, at most
// the parser of a kind that it was made from takes it, and no other.
func TestMutants(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random, start := rand.New(rand.NewPCG(seed, 0)), time.Now()
	good := samples(t)
	accepted, mutants := 0, pace.Share(mutants/10, mutants)
	for range mutants {
		a, b := good[random.IntN(len(good))], good[random.IntN(len(good))]
		mutant := a.with(mutate(random, a.message, b.message))
		taken := takenBy(mutant)
		if len(taken) > 1 || len(taken) == 1 && taken[0] != a.kind && taken[0] != b.kind {
			t.Fatalf("seed %d: a mutant of %s and %s is taken as %v: %x", seed, a.name, b.name, taken, mutant.message)
		}
		if kind, ok := Classify(mutant.message); len(taken) == 1 && (!ok || kind != taken[0]) {
			t.Fatalf("seed %d: a %s message is classified as %q: %x", seed, taken[0], kind, mutant.message)
		}
		accepted += len(taken)
	}
	t.Logf("seed %d: %d mutants, %d still well-formed, 0 of another kind, %v", seed, mutants, accepted, time.Since(start).Round(time.Millisecond))
}

// takenBy returns the kinds whose parser takes the sample.
func takenBy(s sample) []Kind {
	var taken []Kind
	for _, kind := range kinds {
		if s.parse(kind) == nil {
			taken = append(taken, kind)
		}
	}
	return taken
}

// mutate returns a changed copy of a, or a mix of a and b.
func mutate(random *rand.Rand, a, b []byte) []byte {
	at, other := random.IntN(len(a)), random.IntN(len(b))
	switch random.IntN(8) {
	case 0:
		return slices.Concat(a[:at], b[other:])
	case 1:
		return slices.Concat(a, b)
	case 2:
		return a[:at:at]
	case 3:
		return slices.Insert(slices.Clone(a), at, byte(random.Uint32()))
	case 4:
		return slices.Delete(slices.Clone(a), at, at+1)
	case 5:
		mutant := slices.Clone(a)
		copy(mutant[at:], b)
		return mutant
	}
	mutant := slices.Clone(a)
	for range 1 + random.IntN(3) {
		mutant[random.IntN(len(mutant))] ^= 1 << random.IntN(8)
	}
	return mutant
}

// TestRequestInServerParams is the one overlap that the grammars would have: the
// parties of a handshake choose their randoms, and the rest of the input of a
// ServerKeyExchange can lie inside a certificate request.
func TestRequestInServerParams(t *testing.T) {
	good := sampleOf(t, TLS12Server).message
	head := []byte{tagSequence, 0x81, byte(len(good) - 3), tagInteger, 1, 0, tagSequence}
	msg := slices.Clone(good)
	copy(msg, head[:len(head)-1])
	if _, err := ParseTLS12Server(msg, keys.ECDSAP256SHA256); err != nil {
		t.Fatalf("a random that only resembles a request is refused: %v", err)
	}
	copy(msg, head)
	_, err := ParseTLS12Server(msg, keys.ECDSAP256SHA256)
	checkRefusal(t, "randoms that open a request", err, "starts like a certificate request")
}
