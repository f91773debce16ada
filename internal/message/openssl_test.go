package message

import (
	"bufio"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/internal/keys"
)

// recorder is a key that really signs and keeps what it was asked to sign.
type recorder struct {
	crypto.Signer
	messages [][]byte
}

var _ crypto.MessageSigner = (*recorder)(nil)

func (r *recorder) SignMessage(random io.Reader, msg []byte, opts crypto.SignerOpts) ([]byte, error) {
	r.messages = append(r.messages, append([]byte(nil), msg...))
	return crypto.SignMessage(r.Signer, random, msg, opts)
}

func (r *recorder) public(t testing.TB) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(r.Public())
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// pki is a CA with a certificate each for localhost and for a client.
type pki struct {
	dir    string // ca.pem, server.pem, server.key, client.pem, client.key
	roots  *x509.CertPool
	server tls.Certificate
	client tls.Certificate
}

func newKey(t testing.TB, s keys.Scheme) crypto.Signer {
	t.Helper()
	var key crypto.Signer
	var err error
	switch s {
	case keys.ECDSAP256SHA256:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case keys.ECDSAP384SHA384:
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	default:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// newPKI makes a pki whose leaves have keys for scheme s.
func newPKI(t *testing.T, s keys.Scheme) *pki {
	t.Helper()
	p := &pki{dir: t.TempDir(), roots: x509.NewCertPool()}
	ca := newKey(t, keys.ECDSAP256SHA256)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	issue := func(template *x509.Certificate, key, signer crypto.Signer, parent *x509.Certificate) *x509.Certificate {
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	root := issue(template, ca, ca, template)
	p.roots.AddCert(root)
	writePEM(t, p.dir, "ca.pem", "CERTIFICATE", root.Raw)
	leaf := func(name string, serial int64) tls.Certificate {
		key := newKey(t, s)
		template := *template
		template.SerialNumber, template.Subject = big.NewInt(serial), pkix.Name{CommonName: name}
		template.IsCA, template.KeyUsage, template.DNSNames = false, x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment, []string{"localhost"}
		cert := issue(&template, key, ca, root)
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		writePEM(t, p.dir, name+".pem", "CERTIFICATE", cert.Raw)
		writePEM(t, p.dir, name+".key", "PRIVATE KEY", der)
		return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: &recorder{Signer: key}}
	}
	p.server, p.client = leaf("server", 2), leaf("client", 3)
	return p
}

func writePEM(t *testing.T, dir, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

// openssl starts openssl, which ends with the test, and returns its output as
// it comes.
func openssl(t *testing.T, args ...string) io.Reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	cmd := exec.CommandContext(ctx, "openssl", args...)
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatalf("openssl is needed: %v", err)
	}
	w.Close()
	t.Cleanup(func() {
		cancel()
		cmd.Wait()
		out.Close()
	})
	return out
}

// loginTo makes the client of p log in to `openssl s_server`, which demands a
// certificate, and returns what its key signed.
func (p *pki) loginTo(t *testing.T, config *tls.Config, args ...string) []byte {
	t.Helper()
	out := openssl(t, append([]string{
		"s_server", "-accept", "127.0.0.1:0", "-cert", p.path("server.pem"), "-key", p.path("server.key"),
		"-CAfile", p.path("ca.pem"), "-Verify", "1", "-verify_return_error", "-rev", "-naccept", "1",
	}, args...)...)
	conn, err := net.Dial("tcp", waitFor(t, out, "ACCEPT "))
	if err != nil {
		t.Fatal(err)
	}
	config.RootCAs, config.ServerName, config.Certificates = p.roots, "localhost", []tls.Certificate{p.client}
	c := tls.Client(conn, config)
	defer c.Close()
	if _, err := io.WriteString(c, "olleh\n"); err != nil {
		t.Fatal(err)
	}
	// Only the answer proves that the server accepted the certificate.
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "hello\n" {
		t.Fatalf("s_server answered %q, %v", line, err)
	}
	return p.client.PrivateKey.(*recorder).one(t)
}

// serve makes the server of p serve `openssl s_client` and returns what its key
// signed.
func (p *pki) serve(t *testing.T, config *tls.Config, args ...string) []byte {
	t.Helper()
	l, err := net.Listen("unix", p.path("s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	openssl(t, append([]string{
		"s_client", "-unix", p.path("s"), "-CAfile", p.path("ca.pem"), "-servername", "localhost", "-verify_return_error", "-quiet",
	}, args...)...)
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates = []tls.Certificate{p.server}
	s := tls.Server(conn, config)
	defer s.Close()
	if err := s.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p.server.PrivateKey.(*recorder).one(t)
}

func (r *recorder) one(t *testing.T) []byte {
	t.Helper()
	if len(r.messages) != 1 {
		t.Fatalf("the key was asked %d times, want once", len(r.messages))
	}
	return r.messages[0]
}

// waitFor returns what follows prefix in the first line that starts with it.
func waitFor(t *testing.T, out io.Reader, prefix string) string {
	t.Helper()
	var seen strings.Builder
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		if rest, ok := strings.CutPrefix(scanner.Text(), prefix); ok {
			go io.Copy(io.Discard, out)
			return rest
		}
		fmt.Fprintln(&seen, scanner.Text())
	}
	t.Fatalf("openssl ended without %s: %s", prefix, seen.String())
	return ""
}
