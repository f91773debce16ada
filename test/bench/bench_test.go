package main

import (
	"crypto/sha256"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"holdfast/agent/keys"
	agentmessage "holdfast/agent/message"
	"holdfast/test/swtpm"
)

func TestQuantile(t *testing.T) {
	values := []float64{9, 1, 8, 2, 7, 3, 6, 4, 5, 10}
	for _, test := range []struct{ q, want float64 }{{0, 1}, {0.5, 6}, {0.99, 10}, {1, 10}} {
		if got := quantile(values, test.q); got != test.want {
			t.Errorf("quantile %v: got %v, want %v", test.q, got, test.want)
		}
	}
	if values[0] != 9 {
		t.Error("the values were put in order in place")
	}
	if got := median([]time.Duration{3, 1, 2}); got != 2 {
		t.Errorf("median: got %d, want 2", got)
	}
}

func TestEachSideGoesFirstAsOften(t *testing.T) {
	first := [2]int{}
	for round := range 20 {
		order := turn(round)
		first[order[0]]++
		if order[0]+order[1] != 1 {
			t.Errorf("round %d: got %v, want both sides", round, order)
		}
	}
	if first[0] != first[1] {
		t.Errorf("first turns: got %v, want as many for each", first)
	}
}

func TestRate(t *testing.T) {
	b := &bench{stderr: t.Output()}
	pause := func(int) error { time.Sleep(5 * time.Millisecond); return nil }
	if got := b.rate(2, pause); got < 50 || got > 401 {
		t.Errorf("two clients, 5 ms each: got %.0f a second, want at most 400", got)
	}
}

func TestAims(t *testing.T) {
	b := &bench{}
	b.atMost("a", 2, "T", 2)
	b.atMost("a", 2.01, "T", 2)
	b.atLeast("a", 1, "ratio", 1)
	b.atLeast("a", 0.99, "ratio", 1)
	for i, want := range []string{"2.00 meets <= 2", "2.01 MISSES <= 2", "1.000 meets >= 1", "0.990 MISSES >= 1"} {
		if got := b.results[i].verdict(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestDirectSides: both ways to sign without the agent give signatures, of the
// message that the agent takes.
func TestDirectSides(t *testing.T) {
	b := &bench{stderr: t.Output()}
	defer b.close()
	d := newDirect(b, swtpm.Start(b).Dial)
	digest := sha256.Sum256(message())
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
	if _, err := agentmessage.ParseTLS13(message(), agentmessage.Client, keys.ECDSAP256SHA256); err != nil {
		t.Errorf("the message: %v", err)
	}
}

func TestHandshakeFails(t *testing.T) {
	b := &bench{stderr: t.Output()}
	defer b.close()
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
	if status := run([]string{"-only", "tpm_commands"}, &stdout, t.Output(), out); status != 0 {
		t.Fatalf("status: got %d, want 0", status)
	}
	line := regexp.MustCompile(`^([a-zA-Z0-9_]+) ([0-9.]+) ([a-zA-Z]+)$`)
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var stored []result
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 3 || len(stored) != 3 {
		t.Fatalf("got %d lines and %d stored, want 3 and 3", len(lines), len(stored))
	}
	for i, l := range lines {
		m := line.FindStringSubmatch(l)
		if m == nil || m[1] != stored[i].Name || m[2] != stored[i].number() || m[3] != stored[i].Unit {
			t.Errorf("got line %q, stored %+v", l, stored[i])
		}
		if !stored[i].Met {
			t.Errorf("%s: %s", stored[i].Name, stored[i].verdict())
		}
	}
}

// TestFailureEndsOneFigure: a figure that cannot be measured says why, and takes
// down what it had started.
func TestFailureEndsOneFigure(t *testing.T) {
	var started *swtpm.TPM
	_, err := measure(figure{"broken", func(b *bench) {
		started = swtpm.Start(b)
		b.Fatalf("out of %s", "luck")
	}}, t.Output())
	if err == nil || err.Error() != "out of luck" {
		t.Errorf("got %v, want the reason", err)
	}
	if started.Pid() != 0 {
		t.Error("the TPM still runs")
	}
}

func TestPanicIsNoFailure(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a defect of the bench was taken for a figure that fails")
		}
	}()
	_, _ = measure(figure{"broken", func(*bench) { panic("defect") }}, t.Output())
}
