package message

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/keys"
)

// vector is a TLS vector whose length is a number of size bytes.
func vector(size int, parts ...[]byte) []byte {
	body := slices.Concat(parts...)
	return append(number(size, len(body)), body...)
}

func number(size, n int) []byte {
	var b []byte
	for i := size - 1; i >= 0; i-- {
		b = append(b, byte(n>>(8*i)))
	}
	return b
}

func handshakeMessage(kind int, body ...[]byte) []byte {
	return append([]byte{byte(kind)}, vector(3, body...)...)
}

func extension(kind int, body []byte) []byte { return append(number(2, kind), vector(2, body)...) }

// A script is a transcript that can be written with one part changed.
type script struct {
	clientVersion, serverVersion, compression int
	clientExtensions, serverExtensions        []byte
	certificates, schemes, authorities        []byte
	clientCertificates                        []byte
	order                                     []int
}

var fullOrder = []int{1, 2, 11, 22, 12, 13, 14, 11, 16}

// goodScript is a handshake whose client has the certificate of a captured one.
func goodScript(t testing.TB) (script, []byte) {
	t.Helper()
	captured := sampleOf(t, TLS12Client)
	parsed, err := ParseTLS12Client(captured.message, captured.public, captured.scheme)
	if err != nil {
		t.Fatal(err)
	}
	leaf := vector(3, parsed.leaf.Raw)
	return script{
		clientVersion: versionTLS12, serverVersion: versionTLS12,
		clientExtensions:   extension(extServerName, vector(2, []byte{0}, vector(2, []byte("api.example")))),
		serverExtensions:   extension(extExtendedMasterSecret, nil),
		certificates:       leaf,
		schemes:            []byte{8, 4, 4, 3, 5, 3},
		clientCertificates: leaf,
		order:              fullOrder,
	}, captured.public
}

func (s script) bytes() []byte {
	random := bytes.Repeat([]byte{1}, 32)
	var out []byte
	certificates := [][]byte{s.certificates, s.clientCertificates}
	for _, kind := range s.order {
		switch kind {
		case clientHello:
			out = append(out, handshakeMessage(kind, number(2, s.clientVersion), random, vector(1), vector(2, []byte{0xc0, 0x2b}), vector(1, []byte{0}), vector(2, s.clientExtensions))...)
		case serverHello:
			out = append(out, handshakeMessage(kind, number(2, s.serverVersion), random, vector(1), []byte{0xc0, 0x2b, byte(s.compression)}, vector(2, s.serverExtensions))...)
		case certificate:
			out = append(out, handshakeMessage(kind, vector(3, certificates[0]))...)
			certificates = append(certificates[1:], certificates[0])
		case certificateRequest:
			out = append(out, handshakeMessage(kind, vector(1, []byte{1, 64}), vector(2, s.schemes), vector(2, s.authorities))...)
		case serverHelloDone:
			out = append(out, handshakeMessage(kind)...)
		default:
			out = append(out, handshakeMessage(kind, []byte("body"))...)
		}
	}
	return out
}

// TestTranscriptGrammar starts from a good transcript and changes one thing.
func TestTranscriptGrammar(t *testing.T) {
	const version, sequence = "negotiate TLS 1.2", "handshake messages"
	reneg := extension(extRenegotiationInfo, vector(1, bytes.Repeat([]byte{1}, 24)))
	for _, test := range []struct {
		name   string
		change func(*script)
		reason string
	}{
		{"good", func(*script) {}, ""},
		{"no status", func(s *script) { s.order = without(22) }, ""},
		{"no key exchange of the server", func(s *script) { s.order = without(12) }, ""},
		{"neither", func(s *script) { s.order = []int{1, 2, 11, 13, 14, 11, 16} }, ""},
		{"no server name", func(s *script) { s.clientExtensions = nil }, ""},
		{"authorities", func(s *script) { s.authorities = vector(2, []byte{0x30, 0}) }, ""},
		{"first handshake's renegotiation info", func(s *script) { s.serverExtensions = extension(extRenegotiationInfo, []byte{0}) }, ""},
		{"renegotiation with extended master secret", func(s *script) { s.serverExtensions = append(s.serverExtensions, reneg...) }, ""},

		{"renegotiation without it", func(s *script) { s.serverExtensions = reneg }, version},
		{"TLS 1.1", func(s *script) { s.serverVersion = 0x0302 }, version},
		{"TLS 1.0", func(s *script) { s.serverVersion = 0x0301 }, version},
		{"SSL 3", func(s *script) { s.serverVersion = 0x0300 }, version},
		{"TLS 1.3 by extension", func(s *script) { s.serverExtensions = extension(extSupportedVersions, number(2, versionTLS13)) }, version},
		{"compression", func(s *script) { s.compression = 1 }, version},
		{"client of TLS 1.1", func(s *script) { s.clientVersion = 0x0302 }, "ClientHello"},
		{"repeated extension", func(s *script) { s.clientExtensions = append(s.clientExtensions, s.clientExtensions...) }, "ClientHello"},
		{"truncated extension", func(s *script) { s.clientExtensions = s.clientExtensions[:3] }, "ClientHello"},
		{"server name with a line feed", func(s *script) { s.clientExtensions = bytes.Replace(s.clientExtensions, []byte("."), []byte("\n"), 1) }, "ClientHello"},
		{"two server names", func(s *script) {
			one := slices.Concat([]byte{0}, vector(2, []byte("a")))
			s.clientExtensions = extension(extServerName, vector(2, one, one))
		}, "ClientHello"},
		{"no server certificate", func(s *script) { s.certificates = nil }, "certificate list"},
		{"empty server certificate", func(s *script) { s.certificates = vector(3) }, "certificate list"},
		{"no client certificate", func(s *script) { s.clientCertificates = nil }, "client certificate"},
		{"bytes for a client certificate", func(s *script) { s.clientCertificates = vector(3, []byte("certificate")) }, "client certificate"},
		{"byte behind the client certificate", func(s *script) { s.clientCertificates = append(s.clientCertificates, 0) }, "client certificate"},
		{"request of TLS 1.1", func(s *script) { s.schemes = nil }, "CertificateRequest"},
		{"half a scheme", func(s *script) { s.schemes = []byte{4, 3, 4} }, "CertificateRequest"},
		{"broken authorities", func(s *script) { s.authorities = []byte{0, 9, 0} }, "CertificateRequest"},
		{"only SHA-1", func(s *script) { s.schemes = []byte{2, 1, 2, 3} }, "does not take"},
		{"only PKCS #1", func(s *script) { s.schemes = []byte{4, 1, 5, 1} }, "does not take"},
		{"other curve", func(s *script) { s.schemes = []byte{5, 3} }, "does not take"},
		{"scheme across two", func(s *script) { s.schemes = []byte{1, 4, 3, 1} }, "does not take"},

		{"no request", func(s *script) { s.order = without(13) }, sequence},
		{"no end of the server's flight", func(s *script) { s.order = without(14) }, sequence},
		{"no client key exchange", func(s *script) { s.order = without(16) }, sequence},
		{"no server hello", func(s *script) { s.order = without(2) }, sequence},
		{"hello request first", func(s *script) { s.order = append([]int{0}, fullOrder...) }, sequence},
		{"session ticket", func(s *script) { s.order = append(slices.Clone(fullOrder), 4) }, sequence},
		{"certificate verify in it", func(s *script) { s.order = append(slices.Clone(fullOrder), 15) }, sequence},
		{"two handshakes", func(s *script) { s.order = append(slices.Clone(fullOrder), fullOrder...) }, sequence},
		{"two statuses", func(s *script) { s.order = []int{1, 2, 11, 22, 22, 12, 13, 14, 11, 16} }, sequence},
		{"swapped", func(s *script) { s.order = []int{1, 2, 11, 22, 12, 14, 13, 11, 16} }, sequence},
	} {
		s, public := goodScript(t)
		test.change(&s)
		_, err := ParseTLS12Client(s.bytes(), public, keys.ECDSAP256SHA256)
		checkRefusal(t, test.name, err, test.reason)
	}
}

func without(kind int) []int {
	return slices.DeleteFunc(slices.Clone(fullOrder), func(k int) bool { return k == kind })
}

// TestTranscriptBytes has the faults that a script cannot spell.
func TestTranscriptBytes(t *testing.T) {
	s, public := goodScript(t)
	good := s.bytes()
	other := sampleOf(t, CSR).public
	for _, test := range []struct {
		name   string
		msg    []byte
		public []byte
		reason string
	}{
		{"good", good, public, ""},
		{"another key", good, other, "another key"},
		{"no key", good, nil, "another key"},
		{"byte behind", append(slices.Clone(good), 0), public, "handshake messages"},
		{"byte missing", good[:len(good)-1], public, "handshake messages"},
		{"first byte missing", good[1:], public, "handshake messages"},
		{"empty client key exchange", append(slices.Clone(good[:len(good)-8]), 16, 0, 0, 0), public, "ClientKeyExchange"},
		{"body in ServerHelloDone", bytes.Replace(good, handshakeMessage(serverHelloDone), handshakeMessage(serverHelloDone, []byte{0}), 1), public, "ServerHelloDone"},
		{"too long", append(slices.Clone(good), make([]byte, MaxSize)...), public, "too long"},
		{"too short", good[:minTranscript-1], public, "too short"},
	} {
		_, err := ParseTLS12Client(test.msg, test.public, keys.ECDSAP256SHA256)
		checkRefusal(t, test.name, err, test.reason)
	}
}

// TestServerParamsGrammar starts from good parameters and changes one thing.
func TestServerParamsGrammar(t *testing.T) {
	key := func(c ecdh.Curve) []byte {
		k, err := c.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k.PublicKey().Bytes()
	}
	p256 := key(ecdh.P256())
	offCurve := slices.Clone(p256)
	offCurve[64] ^= 1
	for _, test := range []struct {
		name   string
		curve  int
		group  int
		point  []byte
		reason string
	}{
		{"P-256", 3, 23, p256, ""},
		{"P-384", 3, 24, key(ecdh.P384()), ""},
		{"P-521", 3, 25, key(ecdh.P521()), ""},
		{"X25519", 3, 29, key(ecdh.X25519()), ""},
		{"X448", 3, 30, bytes.Repeat([]byte{9}, 56), ""},
		{"explicit prime", 1, 23, p256, "named"},
		{"unknown group", 3, 22, p256, "group"},
		{"hybrid group of TLS 1.3", 3, 0x11ec, p256, "group"},
		{"another group's point", 3, 24, p256, "group"},
		{"short point", 3, 23, p256[:64], "group"},
		{"point off the curve", 3, 23, offCurve, "group"},
		{"compressed point", 3, 23, append([]byte{2}, p256[1:33]...), "group"},
		{"point at infinity", 3, 23, []byte{0}, "group"},
		{"short X25519", 3, 29, bytes.Repeat([]byte{9}, 31), "group"},
		{"short X448", 3, 30, bytes.Repeat([]byte{9}, 55), "group"},
		{"no point", 3, 23, nil, "two randoms"},
	} {
		msg := slices.Concat(bytes.Repeat([]byte("r"), 64), []byte{byte(test.curve)}, number(2, test.group), vector(1, test.point))
		_, err := ParseTLS12Server(msg, keys.ECDSAP256SHA256)
		checkRefusal(t, test.name, err, test.reason)
		if test.reason == "" {
			_, err = ParseTLS12Server(append(msg, 0), keys.ECDSAP256SHA256)
			checkRefusal(t, test.name+" and a byte", err, "two randoms")
		}
	}
}

// TestServerParamsResult pins which bytes are what.
func TestServerParamsResult(t *testing.T) {
	point := strings.Repeat("\x09", 56)
	got, err := ParseTLS12Server([]byte(strings.Repeat("c", 32)+strings.Repeat("s", 32)+"\x03\x00\x1e\x38"+point), keys.RSAPSSSHA256)
	if err != nil {
		t.Fatal(err)
	}
	checkText(t, "client random", string(got.ClientRandom), strings.Repeat("c", 32))
	checkText(t, "server random", string(got.ServerRandom), strings.Repeat("s", 32))
	checkText(t, "point", string(got.Point), point)
	if got.Group != 30 {
		t.Errorf("group %d, want 30", got.Group)
	}
}
