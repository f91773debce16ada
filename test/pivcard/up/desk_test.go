package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A program is up while it runs.
type program struct {
	t       *testing.T
	in      *io.PipeWriter
	answers *bufio.Scanner
	env     map[string]string // what it printed at first
	stderr  bytes.Buffer
	code    chan int
}

func start(t *testing.T, args ...string) *program {
	t.Helper()
	in, hands := io.Pipe()
	said, out := io.Pipe()
	p := &program{t: t, in: hands, answers: bufio.NewScanner(said), env: map[string]string{}, code: make(chan int, 1)}
	go func() {
		code := run(args, in, out, &p.stderr)
		out.Close()
		p.code <- code
	}()
	t.Cleanup(func() { hands.Close(); said.Close() })
	for p.env["READY"] == "" {
		if !p.answers.Scan() {
			t.Fatalf("up ended with %d: %s", <-p.code, &p.stderr)
		}
		name, value, _ := strings.Cut(p.answers.Text(), "=")
		p.env[name] = value
	}
	return p
}

// hand sends a line and returns the answer.
func (p *program) hand(line string) string {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
	if !p.answers.Scan() {
		p.t.Fatalf("no answer to %q: %v", line, p.answers.Err())
	}
	return p.answers.Text()
}

// tool prepares Yubico's own tool to look at the card.
func (p *program) tool(stdin string, args ...string) *exec.Cmd {
	cmd := exec.Command("yubico-piv-tool", args...)
	cmd.Env = append(os.Environ(), "PCSCLITE_CSOCK_NAME="+p.env["PCSCLITE_CSOCK_NAME"])
	cmd.Stdin = strings.NewReader(stdin)
	return cmd
}

func (p *program) must(stdin string, args ...string) string {
	p.t.Helper()
	out, err := p.tool(stdin, args...).Output()
	if err != nil {
		p.t.Fatalf("yubico-piv-tool %q: %v", args, err)
	}
	return string(out)
}

// end closes the input, and expects that nothing is left.
func (p *program) end() {
	p.t.Helper()
	p.in.Close()
	if code := <-p.code; code != 0 {
		p.t.Errorf("exit code %d: %s", code, &p.stderr)
	}
	if conn, err := net.Dial("unix", p.env["PCSCLITE_CSOCK_NAME"]); err == nil {
		conn.Close()
		p.t.Error("pcscd still answers")
	}
}

func TestInAndOut(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "-serial", "4711", "-dir", dir)
	if root := p.env["PIV_ROOT"]; filepath.Dir(root) != dir {
		t.Errorf("the root is %q, want it in %s", root, dir)
	}
	if got := p.must("", "-a", "status"); !strings.Contains(got, "4711") {
		t.Errorf("status: %s", got)
	}
	for _, step := range []struct {
		line, answer string
		there        bool
	}{
		{"remove", "ok remove", false},
		{"remove", "error remove: the card is in no reader", false},
		{"insert", "ok insert", true},
		{"insert", "error insert: the card is in a reader", true},
		{"fetch", "error fetch: the words are touch, touch-after DURATION, remove, insert", true},
		{"", "error : the words are touch, touch-after DURATION, remove, insert", true},
	} {
		if got := p.hand(step.line); got != step.answer {
			t.Errorf("%q: got %q, want %q", step.line, got, step.answer)
		}
		if out, err := p.tool("", "-a", "status").CombinedOutput(); (err == nil) != step.there {
			t.Errorf("after %q: %v: %s", step.line, err, out)
		}
	}
	p.end()
}

// testSignature has the card sign once, with the key of this test.
func (p *program) testSignature(certificate string) *exec.Cmd {
	return p.tool(certificate, "-a", "verify-pin", "-P", "123456", "-a", "test-signature", "-s", "9a")
}

func TestFinger(t *testing.T) {
	p := start(t, "-touch", "0")
	public := p.must("", "-a", "generate", "-s", "9a", "-A", "ECCP256", "--touch-policy", "always")
	certificate := certificateFor(t, public)
	for line, want := range map[string]string{
		"touch":            "error touch: the card is not asking for a touch",
		"touch-after soon": `error touch-after soon: time: invalid duration "soon"`,
		"touch-after":      "error touch-after: the words are touch, touch-after DURATION, remove, insert",
		"touch-after 1ms":  "ok touch-after 1ms",
	} {
		if got := p.hand(line); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
	if out, err := p.testSignature(certificate).CombinedOutput(); err != nil {
		t.Errorf("with a finger after 1 ms: %v: %s", err, out)
	}
	p.hand("touch-after 0s")
	var out bytes.Buffer
	waiting := p.testSignature(certificate)
	waiting.Stdout, waiting.Stderr = &out, &out
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); p.hand("touch") != "ok touch"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the card never asked for a touch")
		}
	}
	if err := waiting.Wait(); err != nil {
		t.Errorf("touched when it asked: %v: %s", err, &out)
	}
	p.end()
}

// certificateFor makes a certificate for a public key, PEM.
func certificateFor(t *testing.T, public string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "public.pem")
	if err := os.WriteFile(file, []byte(public), 0o600); err != nil {
		t.Fatal(err)
	}
	script := `openssl ecparam -name prime256v1 -genkey -noout -out "$1.ca" && openssl x509 -new -key "$1.ca" -subj /CN=test -days 1 -force_pubkey "$1"`
	out, err := exec.Command("sh", "-c", script, "sh", file).Output()
	if err != nil {
		t.Fatalf("openssl: %v", err)
	}
	return string(out)
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-firmware", "new"}, {"-serial", "x"}, {"-no-such"}} {
		var out, stderr bytes.Buffer
		if code := run(args, strings.NewReader(""), &out, &stderr); code != 2 || out.Len() > 0 || stderr.Len() == 0 {
			t.Errorf("%q: exit code %d, said %q, %q", args, code, &out, &stderr)
		}
	}
	var out, stderr bytes.Buffer
	if code := run([]string{"-dir", "/dev/null"}, strings.NewReader(""), &out, &stderr); code != 1 || stderr.Len() == 0 {
		t.Errorf("a file for a directory: exit code %d, %q", code, &stderr)
	}
}
