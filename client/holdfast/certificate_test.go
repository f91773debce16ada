package main

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
)

func TestCertificates(t *testing.T) {
	_, c := withAlice(t)
	ca := clienttest.NewCA(t)
	csr := filepath.Join(t.TempDir(), "alice.csr")
	c.run("certificate", "request", "alice", "--subject", `CN=alice,O=dev\, ops`, "--dns", "a.example", "--dns", "b.example", "--ip", "127.0.0.1", "-o", csr).want(t, 0)
	data, err := os.ReadFile(csr)
	check(t, err)
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		t.Fatalf("got %q", data)
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	check(t, err)
	if r.Subject.CommonName != "alice" || r.Subject.Organization[0] != "dev, ops" || len(r.DNSNames) != 2 || len(r.IPAddresses) != 1 {
		t.Errorf("got %v, %v, %v", r.Subject, r.DNSNames, r.IPAddresses)
	}
	c.run("certificate", "show", "alice").want(t, 1, "has no certificate", "certificate request alice")
	c.run("certificate", "show", "alice", "--json").want(t, 1, "has no certificate")

	chain := clienttest.PEM(ca.Issue(block.Bytes), ca.Certificate.Raw)
	c.run("certificate", "install", "alice", file(t, chain)).want(t, 0, "CN=alice")
	c.run("certificate", "show", "alice").want(t, 0, "subject", "CN=alice", "CN=test CA", "name", "a.example", "127.0.0.1", "sha256")
	if got := c.run("certificate", "show", "alice", "--pem"); got.stdout != string(chain) {
		t.Errorf("--pem: got %q, want what was installed", got.stdout)
	}
	var list []certificate
	check(t, json.Unmarshal([]byte(c.run("certificate", "show", "alice", "--json").stdout), &list))
	if len(list) != 2 || list[0].Subject != r.Subject.String() || list[1].Issuer != "CN=test CA" {
		t.Errorf("--json: got %+v", list)
	}
	command{socket: c.socket, stdin: string(chain)}.run("certificate", "install", "alice", "-").want(t, 0, "CN=alice")
}

// The private key of another program does not travel with its certificate.
func TestInstallRefusals(t *testing.T) {
	agent, c := withAlice(t)
	ca := clienttest.NewCA(t)
	tests := map[string]struct {
		data []byte
		want string
	}{
		"nothing":            {nil, "no certificate"},
		"a private key":      {append(ca.PEM, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"...), "holds a private key"},
		"DER":                {ca.Certificate.Raw, "no certificate in PEM"},
		"a damaged one":      {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Certificate.Raw[:100]}), "certificate 1"},
		"longer than a file": {make([]byte, maxInput+1), "longer than"},
	}
	for name, test := range tests {
		got := c.run("certificate", "install", "alice", file(t, test.data))
		if got.code != 1 || !strings.Contains(got.stderr, test.want) {
			t.Errorf("%s: got %+v, want %q", name, got, test.want)
		}
	}
	if n := len(agent.Calls(agentwire.InstallCertificate)); n != 0 {
		t.Errorf("%d were sent", n)
	}
}
