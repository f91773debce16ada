package message

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// TestGoRequest takes what x509.CreateCertificateRequest hands to a key.
func TestGoRequest(t *testing.T) {
	for _, scheme := range []keys.Scheme{keys.ECDSAP256SHA256, keys.ECDSAP384SHA384, keys.RSAPSSSHA256} {
		key := &recorder{Signer: newKey(t, scheme)}
		_, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
			Subject:  pkix.Name{CommonName: "alice", Organization: []string{"dev", "ops"}},
			DNSNames: []string{"a.example", "b.example"}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)},
			EmailAddresses: []string{"alice@example.com"}, URIs: []*url.URL{{Scheme: "spiffe", Host: "example.com", Path: "/alice"}},
		}, key)
		if err != nil {
			t.Fatal(err)
		}
		s := sample{kind: CSR, scheme: scheme, message: key.one(t), public: key.public(t)}
		got, err := ParseCertificateRequest(s.message, s.public)
		if err != nil {
			t.Fatalf("%s: %v", scheme, err)
		}
		checkText(t, "subject", got.Subject.String(), "CN=alice,O=dev+O=ops")
		checkText(t, "names", strings.Join(slices.Concat(got.DNS, got.IPs, got.Emails, got.URIs), " "),
			"a.example b.example 192.0.2.1 alice@example.com spiffe://example.com/alice")
		if *update {
			s.write(t, "go")
		}
	}
}

func checkText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// TestOpensslRequest takes the requests of `openssl req`.
func TestOpensslRequest(t *testing.T) {
	config := filepath.Join(t.TempDir(), "req.cnf")
	err := os.WriteFile(config, []byte("[req]\ndistinguished_name=dn\nattributes=attributes\n[dn]\n[attributes]\nchallengePassword=challenge\nchallengePassword_default=none given\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		args    []string
		subject string
		dns     string
	}{
		{"ec", []string{"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=alice/O=dev"}, "O=dev,CN=alice", ""},
		{"rsa", []string{"-newkey", "rsa:2048", "-subj", "/CN=alice"}, "CN=alice", ""},
		{"names", []string{"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384", "-subj", "/CN=a", "-addext", "subjectAltName=DNS:a.example,DNS:b.example", "-addext", "extendedKeyUsage=clientAuth", "-addext", "basicConstraints=critical,CA:false"}, "CN=a", "a.example b.example"},
		{"sets", []string{"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-multivalue-rdn", "-subj", "/CN=alice+UID=1/O=dev"}, "O=dev,CN=alice+0.9.2342.19200300.100.1.1=#130131", ""},
		{"empty", []string{"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/"}, "", ""},
		{"utf8", []string{"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-utf8", "-subj", "/CN=Zoë"}, "CN=Zoë", ""},
		{"attributes", []string{"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=a", "-config", config, "-batch", "-addext", "subjectAltName=DNS:a.example"}, "CN=a", "a.example"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := opensslRequest(t, test.args)
			got, err := ParseCertificateRequest(s.message, s.public)
			if err != nil {
				t.Fatal(err)
			}
			checkText(t, "DNS names", strings.Join(got.DNS, " "), test.dns)
			checkText(t, "subject", got.Subject.String(), test.subject)
			if *update {
				s.write(t, "openssl-"+test.name)
			}
		})
	}
}

// opensslRequest returns the part that is signed of what `openssl req` makes.
func opensslRequest(t *testing.T, args []string) sample {
	t.Helper()
	cmd := exec.Command("openssl", append([]string{"req", "-new", "-noenc", "-keyout", filepath.Join(t.TempDir(), "key")}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("openssl req: %v", err)
	}
	block, _ := pem.Decode(out)
	if block == nil {
		t.Fatalf("openssl req wrote no PEM: %s", out)
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return sample{kind: CSR, scheme: keys.ECDSAP256SHA256, message: request.RawTBSCertificateRequest, public: request.RawSubjectPublicKeyInfo}
}

// tlv is an element of DER.
func tlv(tag byte, body ...[]byte) []byte {
	content := bytes.Join(body, nil)
	der, err := asn1.Marshal(asn1.RawValue{Class: int(tag >> 6), Tag: int(tag & 0x1f), IsCompound: tag&tagConstructed != 0, Bytes: content})
	if err != nil {
		panic(err)
	}
	return der
}

// TestRequestGrammar starts from a good request and changes one part.
func TestRequestGrammar(t *testing.T) {
	public := sampleOf(t, CSR).public
	version, subject := tlv(tagInteger, []byte{0}), tlv(tagSequence, pair("alice"))
	attributes := tlv(tagAttributes)
	other, _ := x509.MarshalPKIXPublicKey(newKey(t, keys.ECDSAP256SHA256).Public())
	null := tlv(5)
	for _, test := range []struct {
		name   string
		msg    []byte
		reason string // empty: accepted
	}{
		{"good", tlv(tagSequence, version, subject, public, attributes), ""},
		{"other key", tlv(tagSequence, version, subject, other, attributes), "another public key"},
		{"version 1", tlv(tagSequence, tlv(tagInteger, []byte{1}), subject, public, attributes), "version 0"},
		{"long version", tlv(tagSequence, tlv(tagInteger, []byte{0, 0}), subject, public, attributes), "version 0"},
		{"no attributes", tlv(tagSequence, version, subject, public), "not a version, a subject"},
		{"no subject", tlv(tagSequence, version, public, attributes), "not a version, a subject"},
		{"element behind", tlv(tagSequence, version, subject, public, attributes, null), "not a version, a subject"},
		{"second attributes", tlv(tagSequence, version, subject, public, attributes, attributes), "not a version, a subject"},
		{"byte behind", append(tlv(tagSequence, version, subject, public, attributes), 0), "canonical"},
		{"two requests", bytes.Repeat(tlv(tagSequence, version, subject, public, attributes), 2), "canonical"},
		{"indefinite length", slices.Concat([]byte{tagSequence, 0x80}, version, subject, public, attributes, []byte{0, 0}), "canonical"},
		{"null among attributes", tlv(tagSequence, version, subject, public, tlv(tagAttributes, null)), "not a version, a subject"},
		{"attribute with three parts", tlv(tagSequence, version, subject, public, tlv(tagAttributes, tlv(tagSequence, oid, tlv(tagSet), null))), "not a version, a subject"},
		{"subject of three parts", tlv(tagSequence, version, tlv(tagSequence, tlv(tagSet, tlv(tagSequence, oid, null, null))), public, attributes), "not a version, a subject"},
		{"empty relative name", tlv(tagSequence, version, tlv(tagSequence, tlv(tagSet)), public, attributes), "not a version, a subject"},
		{"unsorted set", tlv(tagSequence, version, tlv(tagSequence, tlv(tagSet, pairOnly("b"), pairOnly("a"))), public, attributes), "canonical"},
		{"key of no algorithm", tlv(tagSequence, version, subject, tlv(tagSequence, null), attributes), "cannot be read"},
		{"too long", tlv(tagSequence, version, tlv(tagSequence, pair(strings.Repeat("a", maxCSR))), public, attributes), "16 KiB"},
		{"signed request", unsigned(tlv(tagSequence, version, subject, public, attributes)), "canonical"},
	} {
		_, err := ParseCertificateRequest(test.msg, public)
		checkRefusal(t, test.name, err, test.reason)
	}
}

var oid = tlv(tagOID, []byte{0x55, 4, 3})

func pairOnly(name string) []byte { return tlv(tagSequence, oid, tlv(0x0c, []byte(name))) }

func pair(name string) []byte { return tlv(tagSet, pairOnly(name)) }

// checkRefusal holds err to be a bad-request that says reason, or nil when there
// is none.
func checkRefusal(t *testing.T, name string, err error, reason string) {
	t.Helper()
	switch {
	case reason == "" && err != nil:
		t.Errorf("%s: %v", name, err)
	case reason != "" && (fault.KindOf(err) != fault.BadRequest || !strings.Contains(err.Error(), reason)):
		t.Errorf("%s: got %v, want a bad-request about %q", name, err, reason)
	}
}
