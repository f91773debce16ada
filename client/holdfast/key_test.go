package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
)

func TestKeyCreate(t *testing.T) {
	agent := clienttest.Start(t)
	c := command{socket: agent.Socket}
	c.run("key", "create", "alice", "--purpose", "tls-client", "--tls12", "--persistent").
		want(t, 0, "alice", "tls-client", "ES256 (ecdsa_secp256r1_sha256)", "SHA256:", "SOFTWARE TPM", "persistent", "TLS 1.2 too")
	c.run("key", "create", "bob", "--purpose", "tls-server", "--algorithm", "RS256", "--rsa-bits", "2048").want(t, 0, "rsa_pss_rsae_sha256")
	c.run("key", "create", "carol", "--purpose", "tls-server", "--slot", "9a").want(t, 1, "no card in any reader")
	c.run("key", "create", "alice", "--purpose", "tls-client").want(t, 1, "there is a key")
	var p agentwire.CreateKeyParameters
	check(t, json.Unmarshal(agent.Calls(agentwire.CreateKey)[1].Parameters, &p))
	if p.Algorithm != "RS256" || p.RSABits != 2048 || p.Backend != "" || p.PIN != nil {
		t.Errorf("got %+v on the wire", p)
	}
}

func TestKeyList(t *testing.T) {
	agent, c := withAlice(t)
	ca := clienttest.NewCA(t)
	agent.AddKey("bob", keys.TLSServer, keys.RS256)
	until := time.Now().Add(time.Hour)
	agent.Change("alice", func(k *agentwire.Key) {
		k.Imported, k.PIN, k.Owner.User = true, true, "root"
		k.Chain = [][]byte{ca.IssueFor("alice", ca.Certificate.PublicKey)}
	})
	agent.Change("bob", func(k *agentwire.Key) {
		k.PIN, k.UnlockedUntil, k.RSABits, k.Fault = true, &until, 3072, "a wrong signature"
		k.Servers = []agentwire.Server{{Address: "api:443"}}
	})
	got := c.run("key", "list")
	got.want(t, 0, "NAME", "CN=alice until 2", "SOFTWARE TPM, imported, PIN wanted",
		"RS256-3072", "not usable: a wrong signature, SOFTWARE TPM, unlocked until", "bound to servers")
	lines := strings.Split(got.stdout, "\n")
	if column := strings.Index(lines[0], "NOTES"); column != strings.Index(lines[1], "SOFTWARE") {
		t.Errorf("columns are not aligned:\n%s", got.stdout)
	}
	c.run("key", "show", "alice").want(t, 0, "imported", "SOFTWARE TPM")
}

// Without a software TPM, nothing is called one.
func TestHardwareIsNotCalledSoftware(t *testing.T) {
	agent, c := withAlice(t)
	agent.Status.Devices[0].Software = false
	for _, args := range [][]string{{"key", "list"}, {"key", "show", "alice"}, {"status"}} {
		if got := c.run(args...); got.code != 0 || strings.Contains(got.stdout, "SOFTWARE") || strings.Contains(got.stdout, "imported") {
			t.Errorf("%v: got %+v", args, got)
		}
	}
}

// A user who may not ask about devices is told that something is not shown.
func TestDevicesNotTold(t *testing.T) {
	agent, c := withAlice(t)
	agent.Fail(agentwire.GetStatus, &fault.Error{Kind: fault.Denied, Message: "not you"})
	got := c.run("key", "list")
	got.want(t, 0, "alice")
	if !strings.Contains(got.stderr, "holdfast: note: the agent does not say what its devices are: not you") {
		t.Errorf("got %q", got.stderr)
	}
}

func TestKeyJSON(t *testing.T) {
	_, c := withAlice(t)
	var list []agentwire.Key
	check(t, json.Unmarshal([]byte(c.run("key", "list", "--json").stdout), &list))
	var one agentwire.Key
	check(t, json.Unmarshal([]byte(c.run("key", "show", "alice", "--json").stdout), &one))
	if len(list) != 1 || list[0].Name != "alice" || one.Scheme != "ecdsa_secp256r1_sha256" || !one.Created.Equal(list[0].Created) {
		t.Errorf("got %+v and %+v", list, one)
	}
	var members map[string]any
	check(t, json.Unmarshal([]byte(c.run("key", "show", "alice", "--json").stdout), &members))
	for _, name := range []string{"name", "purpose", "publicKey", "imported", "tls12", "owner"} {
		if _, ok := members[name]; !ok {
			t.Errorf("no member %q", name)
		}
	}
}

func TestEmptyList(t *testing.T) {
	c := command{socket: clienttest.Start(t).Socket}
	if got := c.run("key", "list"); got.code != 0 || got.stdout != "" || !strings.Contains(got.stderr, "holdfast key create") {
		t.Errorf("got %+v", got)
	}
	if got := c.run("key", "list", "--json"); strings.TrimSpace(got.stdout) != "[]" {
		t.Errorf("got %q, want an empty array", got.stdout)
	}
}

func TestKeyDelete(t *testing.T) {
	agent, c := withAlice(t)
	c.run("key", "delete", "alice").want(t, 5, "needs confirmation", "--yes")
	if n := len(agent.Calls(agentwire.DeleteKey)); n != 0 {
		t.Fatalf("deleted without a yes")
	}
	c.run("key", "delete", "alice", "--yes").want(t, 0)
	c.run("key", "delete", "alice", "--yes").want(t, 4, "no key")
}

func TestKeyExport(t *testing.T) {
	_, c := withAlice(t)
	c.run("key", "export", "alice").want(t, 0, "-----BEGIN TSS2 PRIVATE KEY-----")
	path := filepath.Join(t.TempDir(), "out.pem")
	c.run("key", "export", "alice", "-o", path).want(t, 0)
	data, err := os.ReadFile(path)
	check(t, err)
	info, err := os.Stat(path)
	check(t, err)
	if !strings.Contains(string(data), "TSS2") || info.Mode().Perm() != 0o600 {
		t.Errorf("got %q with mode %v", data, info.Mode())
	}
	c.run("key", "export", "alice", "-o", "/nonexistent/out").want(t, 1, "no such file")
}

func TestKeyAdopt(t *testing.T) {
	agent := clienttest.Start(t)
	const tss2 = "-----BEGIN TSS2 PRIVATE KEY-----\nAAAA\n-----END TSS2 PRIVATE KEY-----\n"
	c := command{socket: agent.Socket, stdin: tss2}
	c.run("key", "adopt", "alice", "-", "--purpose", "tls-client", "--allow-imported").want(t, 0, "imported")
	c.run("key", "adopt", "bob", file(t, []byte(tss2)), "--purpose", "tls-client").want(t, 0, "bob")
	c.run("key", "adopt", "carol", "/nonexistent", "--purpose", "tls-client").want(t, 1, "no such file")
	var p agentwire.AdoptKeyParameters
	check(t, json.Unmarshal(agent.Calls(agentwire.AdoptKey)[0].Parameters, &p))
	if p.File != tss2 || !p.AllowImported || p.Purpose != "tls-client" {
		t.Errorf("got %+v on the wire", p)
	}
	c.run("key", "adopt", "dave", file(t, make([]byte, maxInput+1)), "--purpose", "tls-client").want(t, 1, "longer than")
}

// A private key that is in the open is not sent anywhere.
func TestKeyAdoptPlainKey(t *testing.T) {
	agent := clienttest.Start(t)
	for _, kind := range []string{"", "EC ", "RSA ", "ENCRYPTED ", "OPENSSH "} {
		path := file(t, []byte("-----BEGIN "+kind+"PRIVATE KEY-----\nAAAA\n-----END "+kind+"PRIVATE KEY-----\n"))
		command{socket: agent.Socket}.run("key", "adopt", "alice", path, "--purpose", "tls-client").want(t, 1, "not in a TPM")
	}
	if n := len(agent.Calls(agentwire.AdoptKey)); n != 0 {
		t.Errorf("%d keys were sent", n)
	}
}
