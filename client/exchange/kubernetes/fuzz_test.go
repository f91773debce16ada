package kubernetes

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
)

// Whatever a server says, an error is one printable line, and a certificate that
// passes is for the request's key.
func FuzzStatus(f *testing.F) {
	f.Add(403, "application/json", "1", []byte(`{"kind":"Status","message":"no","reason":"Forbidden","details":{"retryAfterSeconds":3}}`))
	f.Add(503, "text/plain", "Thu, 01 Jan 2026 00:00:07 GMT", []byte("away\x1b[2J"))
	f.Add(429, "application/json; charset=utf-8", "-7", []byte(`{"kind":"Status","message":"a\nb\u0000"}`))
	f.Fuzz(func(t *testing.T, code int, kind, after string, body []byte) {
		e := newStatusError(&http.Response{StatusCode: code, Header: http.Header{"Content-Type": {kind}, "Retry-After": {after}}}, body)
		odd := func(r rune) bool { return !unicode.IsPrint(r) }
		if text := e.Error(); text == "" || strings.ContainsFunc(text, odd) || e.After < 0 {
			t.Errorf("got %q, %s", text, e.After)
		}
	})
}

func FuzzWatch(f *testing.F) {
	f.Add([]byte(`{"type":"MODIFIED","object":{"metadata":{"uid":"u"},"status":{"conditions":[{"type":"Approved"}],"certificate":"LS0t"}}}`))
	f.Add([]byte(`{"type":"MODIFIED","object":{"metadata":{"uid":"u"},"status":{"conditions":[{"type":"Denied","message":"no"}]}}}`))
	f.Add([]byte(`{"type":"BOOKMARK","object":{}}` + "\n" + `{"type":"ERROR","object":{"code":410}}`))
	f.Fuzz(func(t *testing.T, stream []byte) {
		w := &waiting{client: &Client{}, name: "a", uid: "u"}
		certificate, err := w.read(bytes.NewReader(stream))
		if certificate != nil && (err != nil || !w.approved) {
			t.Errorf("a certificate of a request that is not approved, or with the error %v", err)
		}
	})
}

func FuzzCertificate(f *testing.F) {
	csr, key, good := issued(f)
	f.Add(good)
	f.Add(append([]byte("text\n"), bytes.Repeat(good, 11)...))
	f.Add(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}))
	f.Fuzz(func(t *testing.T, data []byte) {
		chain, err := checkCertificate(data, csr, time.Now().Add(time.Minute))
		if err != nil {
			return
		}
		leaf, err := x509.ParseCertificate(chain[0])
		if err != nil || !key.PublicKey.Equal(leaf.PublicKey) || len(chain) > maxChain {
			t.Errorf("took %d certificates, the first %v", len(chain), err)
		}
	})
}

// The seeds are not all refused.
func TestSeedPasses(t *testing.T) {
	csr, _, good := issued(t)
	if _, err := checkCertificate(good, csr, time.Now().Add(time.Minute)); err != nil {
		t.Error(err)
	}
}

// issued returns a request, its key, and a certificate, PEM, that fits it.
func issued(t testing.TB) (csr []byte, key *ecdsa.PrivateKey, good []byte) {
	t.Helper()
	csr, key = request(t, alice())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: alice(), NotBefore: time.Now(), NotAfter: time.Now().Add(1000 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return csr, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
