package main

import (
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"holdfast/internal/keys"
	"holdfast/internal/message"
	"holdfast/test/bench/measure"
	"holdfast/test/swtpm"
)

// TestDirectSides: both ways to sign without the agent give signatures, of the
// message that the agent takes.
func TestDirectSides(t *testing.T) {
	b := measure.New(t.Output())
	defer b.Close()
	d := newDirect(b, swtpm.Start(b).Dial)
	digest := sha256.Sum256(clientMessage())
	for range 50 { // numbers with leading zeros among them
		for name, sign := range map[string]func([]byte) ([]byte, error){
			"go-tpm":  func(h []byte) ([]byte, error) { return d.Sign(nil, h, nil) },
			"by hand": d.byHand,
		} {
			signature, err := sign(digest[:])
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := keys.Verify(d.public, keys.ECDSAP256SHA256, digest[:], signature); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if _, err := message.ParseTLS13(clientMessage(), message.Client, keys.ECDSAP256SHA256); err != nil {
		t.Errorf("the message: %v", err)
	}
}

func TestHandshakeFails(t *testing.T) {
	b := measure.New(t.Output())
	defer b.Close()
	d := newDirect(b, swtpm.Start(b).Dial)
	server := serverConfig(b)
	if err := handshaker(b, d, server)(0); err != nil {
		t.Errorf("with the key: %v", err)
	}
	d.handle++ // no such key
	if err := handshaker(b, d, server)(0); err == nil {
		t.Error("without the key: got a handshake")
	}
}

// TestLines: a figure's lines on stdout, and the same in BENCH_OUT.
func TestLines(t *testing.T) {
	out := filepath.Join(t.TempDir(), "bench.json")
	var stdout strings.Builder
	if status := measure.Main(figures(), []string{"-only", "tpm_commands"}, &stdout, t.Output(), out); status != 0 {
		t.Fatalf("status: got %d, want 0", status)
	}
	line := regexp.MustCompile(`^([a-zA-Z0-9_]+) ([0-9.]+) ([a-zA-Z]+)$`)
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var stored []measure.Result
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 3 || len(stored) != 3 {
		t.Fatalf("got %d lines and %d stored, want 3 and 3", len(lines), len(stored))
	}
	for i, l := range lines {
		m := line.FindStringSubmatch(l)
		if m == nil || m[1] != stored[i].Name || m[2] != stored[i].Number() || m[3] != stored[i].Unit {
			t.Errorf("got line %q, stored %+v", l, stored[i])
		}
		if !stored[i].Met {
			t.Errorf("%s: %s", stored[i].Name, stored[i].Verdict())
		}
	}
}
