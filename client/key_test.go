package client_test

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"holdfast/client"
	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

// tls13Message is what a TLS 1.3 client signs with a SHA-256 transcript.
func tls13Message() []byte {
	return []byte(strings.Repeat(" ", 64) + "TLS 1.3, client CertificateVerify\x00" + strings.Repeat("h", 32))
}

func fetch(t *testing.T, c *client.Client, name string) *client.Key {
	t.Helper()
	k, err := c.Key(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// newKey returns a key of a stand-in agent.
func newKey(t *testing.T, purpose keys.Purpose, algorithm keys.Algorithm) (*clienttest.Agent, *client.Key) {
	t.Helper()
	agent := clienttest.Start(t)
	agent.AddKey("alice", purpose, algorithm)
	return agent, fetch(t, dial(t, agent.Socket), "alice")
}

func TestSignMessage(t *testing.T) {
	_, k := newKey(t, keys.TLSClient, keys.ES256)
	signature, err := crypto.SignMessage(k, nil, tls13Message(), crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	h := crypto.SHA256.New()
	h.Write(tls13Message())
	if err := keys.Verify(k.Public(), keys.ECDSAP256SHA256, h.Sum(nil), signature); err != nil {
		t.Error(err)
	}
}

func TestSignOfDigest(t *testing.T) {
	_, k := newKey(t, keys.TLSClient, keys.ES256)
	_, err := k.Sign(nil, make([]byte, 32), crypto.SHA256)
	if e, ok := fault.AsError(err); !ok || e.Kind != fault.Unsupported || !strings.Contains(e.Hint, "SignMessage") {
		t.Errorf("got %v, want an error that names crypto.SignMessage", err)
	}
}

// Each case starts from options and a message that work and changes one.
func TestSignMessageRefusals(t *testing.T) {
	pss := func(salt int, h crypto.Hash) *rsa.PSSOptions { return &rsa.PSSOptions{SaltLength: salt, Hash: h} }
	tests := []struct {
		name      string
		algorithm keys.Algorithm
		opts      crypto.SignerOpts
		msg       []byte
		want      fault.Kind
	}{
		{"good", keys.ES256, crypto.SHA256, tls13Message(), ""},
		{"no options", keys.ES256, nil, tls13Message(), fault.BadRequest},
		{"no hash", keys.ES256, crypto.Hash(0), tls13Message(), fault.BadRequest},
		{"another hash", keys.ES256, crypto.SHA384, tls13Message(), fault.BadRequest},
		{"PSS with an ECDSA key", keys.ES256, pss(32, crypto.SHA256), tls13Message(), fault.BadRequest},
		{"a digest", keys.ES256, crypto.SHA256, make([]byte, 32), fault.BadRequest},
		{"nothing", keys.ES256, crypto.SHA256, nil, fault.BadRequest},
		{"good PSS", keys.RS256, pss(rsa.PSSSaltLengthEqualsHash, crypto.SHA256), tls13Message(), ""},
		{"good PSS, salt as a number", keys.RS256, pss(32, crypto.SHA256), tls13Message(), ""},
		{"PKCS #1 v1.5", keys.RS256, crypto.SHA256, tls13Message(), fault.BadRequest},
		{"the longest salt", keys.RS256, pss(rsa.PSSSaltLengthAuto, crypto.SHA256), tls13Message(), fault.BadRequest},
		{"a short salt", keys.RS256, pss(20, crypto.SHA256), tls13Message(), fault.BadRequest},
		{"PSS with another hash", keys.RS256, pss(rsa.PSSSaltLengthEqualsHash, crypto.SHA384), tls13Message(), fault.BadRequest},
		{"nil PSS options", keys.RS256, (*rsa.PSSOptions)(nil), tls13Message(), fault.BadRequest},
	}
	agent := clienttest.Start(t)
	agent.AddKey("es256", keys.TLSClient, keys.ES256)
	agent.AddKey("rs256", keys.TLSClient, keys.RS256)
	c := dial(t, agent.Socket)
	for _, test := range tests {
		k := fetch(t, c, strings.ToLower(string(test.algorithm)))
		before := len(agent.Calls(agentwire.SignTLSClient))
		_, err := k.SignMessage(nil, test.msg, test.opts)
		if got := fault.KindOf(err); got != test.want {
			t.Errorf("%s: got %q (%v), want %q", test.name, got, err, test.want)
		}
		if asked := len(agent.Calls(agentwire.SignTLSClient)) > before; asked != (test.want == "") {
			t.Errorf("%s: agent asked: %t", test.name, asked)
		}
	}
}

func TestSignMessageRepeats(t *testing.T) {
	agent, k := newKey(t, keys.TLSClient, keys.ES256)
	agent.Lose(agentwire.SignTLSClient, 1)
	if _, err := k.SignMessage(nil, tls13Message(), crypto.SHA256); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, call := range agent.Calls(agentwire.SignTLSClient) {
		var p agentwire.SignTLSClientParameters
		json.Unmarshal(call.Parameters, &p)
		ids = append(ids, p.RequestID)
	}
	if len(ids) != 2 || ids[0] == "" || ids[0] != ids[1] {
		t.Errorf("got request ids %q, want one id twice", ids)
	}
}

func TestWrongPurpose(t *testing.T) {
	_, k := newKey(t, keys.TLSServer, keys.ES256)
	if _, err := k.SignMessage(nil, tls13Message(), crypto.SHA256); fault.KindOf(err) != fault.WrongPurpose {
		t.Errorf("got %v, want wrong-purpose", err)
	}
}

func TestSignTimeout(t *testing.T) {
	agent, k := newKey(t, keys.TLSClient, keys.ES256)
	if _, err := k.WithTimeout(time.Nanosecond).SignMessage(nil, tls13Message(), crypto.SHA256); fault.KindOf(err) != fault.Deadline {
		t.Errorf("timeout: got %v, want deadline", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := k.WithContext(ctx).SignMessage(nil, tls13Message(), crypto.SHA256); !errors.Is(err, context.Canceled) {
		t.Errorf("context: got %v, want the context's error", err)
	}
	if _, err := k.WithTimeout(0).SignMessage(nil, tls13Message(), crypto.SHA256); err != nil {
		t.Errorf("no timeout: %v", err)
	}
	if n := len(agent.Calls(agentwire.SignTLSClient)); n != 1 {
		t.Errorf("the agent was asked %d times, want once", n)
	}
}

func TestUnknownScheme(t *testing.T) {
	agent := clienttest.Start(t)
	agent.AddKey("alice", keys.TLSClient, keys.ES256)
	agent.Change("alice", func(k *agentwire.Key) { k.Scheme = "ecdsa_brainpoolP256r1tls13_sha256" })
	if _, err := dial(t, agent.Socket).Key(context.Background(), "alice"); fault.KindOf(err) != fault.Unsupported {
		t.Errorf("got %v, want unsupported", err)
	}
}

func TestCertificateRequest(t *testing.T) {
	want := map[keys.Algorithm]x509.SignatureAlgorithm{
		keys.ES256: x509.ECDSAWithSHA256, keys.ES384: x509.ECDSAWithSHA384, keys.RS256: x509.SHA256WithRSAPSS,
	}
	for _, algorithm := range keys.Algorithms() {
		_, k := newKey(t, keys.TLSClient, algorithm)
		template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "alice"}, DNSNames: []string{"a.example"}}
		der, err := k.CertificateRequest(template)
		if err != nil {
			t.Fatalf("%s: %v", algorithm, err)
		}
		r, err := x509.ParseCertificateRequest(der)
		if err == nil {
			err = r.CheckSignature()
		}
		if err != nil || r.SignatureAlgorithm != want[algorithm] || r.Subject.CommonName != "alice" {
			t.Errorf("%s: got %v for %v, %v", algorithm, r.SignatureAlgorithm, r.Subject, err)
		}
		if template.SignatureAlgorithm != 0 {
			t.Errorf("%s: the template was changed", algorithm)
		}
	}
}

// A TLS key signs no certificates.
func TestNoCA(t *testing.T) {
	_, k := newKey(t, keys.TLSServer, keys.ES256)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	_, err := x509.CreateCertificate(nil, template, template, k.Public(), k)
	if err == nil || !strings.Contains(err.Error(), "certificate requests") {
		t.Errorf("got %v, want a refusal that says what the key signs", err)
	}
}
