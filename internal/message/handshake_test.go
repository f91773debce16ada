package message

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

var update = flag.Bool("update", false, "write the captured messages to testdata")

// handshakes are the real handshakes whose signed messages the parsers must
// take. Both cipher suite hashes meet every scheme.
var handshakes = []struct {
	name   string
	kind   Kind
	scheme keys.Scheme
	suites []uint16 // of Go's side; nil: its own choice
	max    uint16   // of Go's side; 0: its own choice
	args   []string // of openssl
	ems    bool
}{
	{name: "p256", kind: TLS13Client, scheme: keys.ECDSAP256SHA256, args: []string{"-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"}},
	{name: "p256-sha384", kind: TLS13Client, scheme: keys.ECDSAP256SHA256, args: []string{"-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"}},
	{name: "p384-sha256", kind: TLS13Client, scheme: keys.ECDSAP384SHA384, args: []string{"-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"}},
	{name: "p384", kind: TLS13Client, scheme: keys.ECDSAP384SHA384, args: []string{"-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"}},
	{name: "rsa", kind: TLS13Client, scheme: keys.RSAPSSSHA256, args: []string{"-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"}},
	{name: "p256", kind: TLS13Server, scheme: keys.ECDSAP256SHA256, args: []string{"-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"}},
	{name: "p384", kind: TLS13Server, scheme: keys.ECDSAP384SHA384, args: []string{"-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"}},
	{name: "rsa", kind: TLS13Server, scheme: keys.RSAPSSSHA256, args: []string{"-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"}},

	{name: "p256", kind: TLS12Client, scheme: keys.ECDSAP256SHA256, ems: true, args: []string{"-tls1_2"}},
	{name: "p384", kind: TLS12Client, scheme: keys.ECDSAP384SHA384, ems: true, args: []string{"-tls1_2"}},
	{name: "rsa", kind: TLS12Client, scheme: keys.RSAPSSSHA256, ems: true, args: []string{"-tls1_2"}},
	{
		name: "rsa-key-exchange", kind: TLS12Client, scheme: keys.RSAPSSSHA256, ems: true, args: []string{"-tls1_2"},
		suites: []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256},
	},
	{name: "max12", kind: TLS12Client, scheme: keys.ECDSAP256SHA256, ems: true, max: tls.VersionTLS12},

	{name: "p256", kind: TLS12Server, scheme: keys.ECDSAP256SHA256, args: []string{"-tls1_2", "-groups", "P-256"}},
	{name: "p384", kind: TLS12Server, scheme: keys.ECDSAP384SHA384, args: []string{"-tls1_2", "-groups", "P-384"}},
	{name: "p521", kind: TLS12Server, scheme: keys.ECDSAP256SHA256, args: []string{"-tls1_2", "-groups", "P-521:P-256"}},
	{name: "x25519", kind: TLS12Server, scheme: keys.RSAPSSSHA256, args: []string{"-tls1_2", "-groups", "X25519"}},
}

// TestRealHandshakes lets Go and openssl shake hands and gives the parsers what
// the key was asked to sign. With -update it keeps the messages as the good
// baselines of the other tests.
func TestRealHandshakes(t *testing.T) {
	for _, test := range handshakes {
		t.Run(string(test.kind)+"/"+test.name, func(t *testing.T) {
			t.Parallel()
			p := newPKI(t, test.scheme)
			config, leaf := &tls.Config{CipherSuites: test.suites, MaxVersion: test.max}, p.client
			var msg []byte
			if strings.HasSuffix(string(test.kind), "-client") {
				msg = p.loginTo(t, config, test.args...)
			} else {
				leaf = p.server
				msg = p.serve(t, config, test.args...)
			}
			s := sample{kind: test.kind, scheme: test.scheme, message: msg, public: leaf.PrivateKey.(*recorder).public(t)}
			if err := s.parse(test.kind); err != nil {
				t.Errorf("%s handshake: %v", test.kind, err)
			}
			if kind, ok := Classify(msg); kind != test.kind || !ok {
				t.Errorf("Classify = %s, %v", kind, ok)
			}
			if *update {
				s.write(t, test.name)
			}
			if test.kind == TLS12Client {
				checkTranscript(t, s, p, test.ems)
			}
		})
	}
}

func checkTranscript(t *testing.T, s sample, p *pki, ems bool) {
	t.Helper()
	got, err := ParseTLS12Client(s.message, s.public, s.scheme)
	if err != nil {
		t.Fatal(err)
	}
	if got.ServerName != "localhost" || got.ExtendedMasterSecret != ems {
		t.Errorf("server name %q, extended master secret %v", got.ServerName, got.ExtendedMasterSecret)
	}
	if len(got.ServerChain) == 0 || !bytes.Equal(got.ServerChain[0], p.server.Certificate[0]) {
		t.Errorf("the server's certificate is not in the transcript")
	}
}

// TestStapledStatus has a CertificateStatus in the transcript, which s_server
// sends only with an OCSP responder behind it; Go's server takes any staple.
func TestStapledStatus(t *testing.T) {
	p := newPKI(t, keys.ECDSAP256SHA256)
	p.server.OCSPStaple = []byte("a staple")
	c, s := net.Pipe()
	server := tls.Server(s, &tls.Config{
		Certificates: []tls.Certificate{p.server}, MaxVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert,
	})
	client := tls.Client(c, &tls.Config{RootCAs: p.roots, ServerName: "localhost", Certificates: []tls.Certificate{p.client}})
	served := make(chan error, 1)
	go func() { served <- server.HandshakeContext(t.Context()) }()
	if err := client.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	key := p.client.PrivateKey.(*recorder)
	if _, err := ParseTLS12Client(key.one(t), key.public(t), keys.ECDSAP256SHA256); err != nil {
		t.Error(err)
	}
	m, err := split(key.one(t))
	if _, ok := m[certificateStatus]; err != nil || !ok {
		t.Errorf("no CertificateStatus in the transcript: %v", err)
	}
}

// TestOldVersions pins that nothing of TLS 1.1 or below reaches a parser as a
// message: crypto/tls hands over a digest there, and a digest is refused.
func TestOldVersions(t *testing.T) {
	p := newPKI(t, keys.ECDSAP256SHA256)
	key := &digestRecorder{Signer: p.client.PrivateKey.(*recorder).Signer}
	p.client.PrivateKey = key
	c, s := net.Pipe()
	defer c.Close()
	server := tls.Server(s, &tls.Config{
		Certificates: []tls.Certificate{p.server}, MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11, ClientAuth: tls.RequireAnyClientCert,
	})
	go server.HandshakeContext(t.Context())
	client := tls.Client(c, &tls.Config{RootCAs: p.roots, ServerName: "localhost", MinVersion: tls.VersionTLS11, Certificates: []tls.Certificate{p.client}})
	if err := client.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if key.digest == nil {
		t.Fatal("TLS 1.1 did not ask for a signature of a digest")
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		s := sample{scheme: keys.ECDSAP256SHA256, message: key.digest, public: public}
		if err := s.parse(kind); fault.KindOf(err) != fault.BadRequest || !strings.Contains(err.Error(), "a digest") {
			t.Errorf("%s: %v, want a bad-request that names the digest", kind, err)
		}
	}
}

// digestRecorder is no MessageSigner, so it sees what old versions sign.
type digestRecorder struct {
	crypto.Signer
	digest []byte
}

func (d *digestRecorder) Sign(random io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	d.digest = digest
	return d.Signer.Sign(random, digest, opts)
}

// A sample is a message that its parser takes, with what the parser wants
// besides it.
type sample struct {
	name    string
	kind    Kind
	scheme  keys.Scheme
	message []byte
	public  []byte
}

var kinds = []Kind{TLS13Client, TLS13Server, TLS12Client, TLS12Server, CSR}

// parse gives the sample to the parser of kind.
func (s sample) parse(kind Kind) error {
	var err error
	switch kind {
	case TLS13Client:
		_, err = ParseTLS13(s.message, Client, s.scheme)
	case TLS13Server:
		_, err = ParseTLS13(s.message, Server, s.scheme)
	case TLS12Client:
		_, err = ParseTLS12Client(s.message, s.public, s.scheme)
	case TLS12Server:
		_, err = ParseTLS12Server(s.message, s.scheme)
	case CSR:
		_, err = ParseCertificateRequest(s.message, s.public)
	}
	return err
}

// with returns the sample with another message.
func (s sample) with(msg []byte) sample {
	s.message = msg
	return s
}

const testdata = "testdata/messages"

// write keeps the sample as KIND,NAME,SCHEME.msg and .spki.
func (s sample) write(t *testing.T, name string) {
	t.Helper()
	base := filepath.Join(testdata, strings.Join([]string{string(s.kind), name, string(s.scheme)}, ","))
	if err := os.MkdirAll(testdata, 0o755); err != nil {
		t.Fatal(err)
	}
	for suffix, content := range map[string][]byte{".msg": s.message, ".spki": s.public} {
		if err := os.WriteFile(base+suffix, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// samples reads what -update kept: at least one of each kind.
func samples(t testing.TB) []sample {
	t.Helper()
	files, err := filepath.Glob(testdata + "/*.msg")
	if err != nil {
		t.Fatal(err)
	}
	var list []sample
	have := make(map[Kind]bool)
	for _, file := range files {
		base := strings.TrimSuffix(file, ".msg")
		field := strings.Split(filepath.Base(base), ",")
		s := sample{name: filepath.Base(base), kind: Kind(field[0]), scheme: keys.Scheme(field[2])}
		if s.message, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
		if s.public, err = os.ReadFile(base + ".spki"); err != nil {
			t.Fatal(err)
		}
		have[s.kind] = true
		list = append(list, s)
	}
	if len(have) != len(kinds) {
		t.Fatalf("%s has messages of %d kinds, want %d", testdata, len(have), len(kinds))
	}
	return list
}

// sampleOf returns the first sample of a kind.
func sampleOf(t testing.TB, kind Kind) sample {
	t.Helper()
	for _, s := range samples(t) {
		if s.kind == kind {
			return s
		}
	}
	t.Fatalf("no sample of %s", kind)
	return sample{}
}
