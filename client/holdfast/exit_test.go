package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
)

// Every kind of failure has its exit code, and the user sees fact and hint.
func TestExitCodes(t *testing.T) {
	want := map[fault.Kind]int{
		fault.Denied: 4, fault.PINRequired: 5, fault.PINBlocked: 5, fault.TouchTimeout: 5, fault.ConfirmationRequired: 5,
	}
	agent := clienttest.Start(t)
	for _, kind := range fault.Kinds() {
		agent.Fail(agentwire.GetStatus, &fault.Error{Kind: kind, Message: "fact of " + string(kind), Hint: "take the next step"})
		code := want[kind]
		if code == 0 {
			code = 1
		}
		got := command{socket: agent.Socket}.run("status")
		text := fmt.Sprintf("holdfast: error: fact of %s\nholdfast: hint: take the next step\n", kind)
		if got.code != code || got.stderr != text || got.stdout != "" {
			t.Errorf("%s: got %+v, want code %d and %q", kind, got, code, text)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	agent := clienttest.Start(t)
	agent.Fail(agentwire.GetStatus, &fault.Error{Kind: fault.Busy, Message: "the queue is full", RetryAfter: 250 * time.Millisecond})
	command{socket: agent.Socket}.run("status").want(t, 1, "holdfast: hint: try again in 250ms")
}

func TestUnreachable(t *testing.T) {
	got := command{socket: t.TempDir() + "/agent.sock"}.run("status")
	got.want(t, 3, "holdfast: error: no agent listens at", "holdfast: hint: start one")
}

func TestHoldfastSocket(t *testing.T) {
	agent := clienttest.Start(t)
	t.Setenv("HOLDFAST_SOCKET", agent.Socket)
	command{}.run("status").want(t, 0, agent.Socket)
}

func TestInterrupted(t *testing.T) {
	agent := clienttest.Start(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var stderr strings.Builder
	code := run(ctx, []string{"--socket", agent.Socket, "status"}, streams{strings.NewReader(""), &stderr, &stderr, nil})
	if code != 1 || stderr.String() != "holdfast: error: interrupted\n" {
		t.Errorf("got %d and %q", code, stderr.String())
	}
}

func TestUsage(t *testing.T) {
	for _, line := range []string{
		"", "nonsense", "key", "key nonsense", "--nonsense", "key create", "key create alice",
		"key create Alice --purpose tls-client", "key create alice --purpose cooking",
		"key create alice --purpose tls-client --algorithm MD5", "key create alice --purpose tls-client --rsa-bits 2048",
		"key create alice bob --purpose tls-client", "key show", "key show ../alice", "key delete", "key adopt alice",
		"key adopt alice file", "key bind alice", "key bind alice --server a:1", "key list alice", "status now",
		"certificate request alice", "certificate request alice --subject alice", "certificate request alice --dns ä",
		"certificate install alice", "tls connect", "tls connect localhost",
		"tls connect :443", "unlock", "lock Alice", "policy check", "policy check --uid 1", "policy check --uid 1 --operation fly",
		"policy check --uid 1 --operation list --owner 2", "policy check --uid 4294967295 --operation list", "policy check --uid x",
		"audit tail -n 0", "completion", "completion ksh", "version 2",
	} {
		got := command{socket: "/nonexistent/agent.sock"}.run(strings.Fields(line)...)
		if got.code != exitUsage || !strings.HasPrefix(got.stderr, "holdfast: error: ") || got.stdout != "" {
			t.Errorf("%q: got %+v, want exit code 2 and an error", line, got)
		}
	}
}

// A file that cannot be read or written, or holds nothing, comes with a next step.
func TestFileHints(t *testing.T) {
	agent, c := withAlice(t)
	const missing, rename = "name a file that exists", "leave -o out for stdout"
	for line, want := range map[string]string{
		"certificate install alice /nonexistent/x":                   missing,
		"tls connect --ca /nonexistent/x localhost:1":                missing,
		"key adopt bob /nonexistent/x --purpose tls-client":          missing,
		"key export alice -o /nonexistent/x":                         rename,
		"certificate request alice --subject CN=a -o /nonexistent/x": rename,
		"key adopt bob - --purpose tls-client":                       "holdfast key export",
		"certificate install alice -":                                "name the file that the CA returned",
	} {
		c.run(strings.Fields(line)...).want(t, exitFailed, "\nholdfast: hint: ", want)
	}
	c.run("key", "adopt", "bob", "-", "--purpose", "tls-client").want(t, exitFailed, "error: stdin holds no TSS2")
	c.run("tls", "connect", "localhost").want(t, exitUsage, "hint: give both, such as localhost:443")
	if n := len(agent.Calls(agentwire.AdoptKey)); n != 0 {
		t.Errorf("%d files were sent", n)
	}
}

// The next step of the agent names no key; the command line of the user does.
func TestUnlockHintNamesKey(t *testing.T) {
	agent, c := withLockedAlice(t)
	locked := &fault.Error{Kind: fault.PINRequired, Message: "the key is locked with a PIN", Next: fault.Next{Do: fault.Unlock}}
	agent.Fail(agentwire.UnlockKey, locked)
	agent.Fail(agentwire.SignCertificateRequest, locked)
	c.stdin = "271828"
	for _, line := range []string{"unlock alice --pin-fd 0", "certificate request alice --subject CN=alice"} {
		c.run(strings.Fields(line)...).want(t, exitPerson, "locked with a PIN", "holdfast: hint: holdfast unlock alice\n")
	}
}

// Names in certificates and errors must not reach the terminal as commands.
func TestPrintable(t *testing.T) {
	agent := clienttest.Start(t)
	agent.Fail(agentwire.GetStatus, &fault.Error{Kind: fault.Denied, Message: "go\x1b[2J away\x07"})
	got := command{socket: agent.Socket}.run("status")
	if strings.ContainsAny(got.stderr, "\x1b\x07") {
		t.Errorf("got %q, with control characters", got.stderr)
	}
}

// TestForgedRows: text of a card's certificate, its reader or a device begins no row of a
// table.
func TestForgedRows(t *testing.T) {
	const forged = "alice\nstate   ready\r\x1b[2Kslots   all empty\u2028\tx"
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	certificate := clienttest.NewCA(t).IssueFor(forged, public)
	var b strings.Builder
	err = printCard(&b, agentwire.Card{
		Serial: 7, Reader: forged, State: "failed", Reason: forged, Hint: forged, Notes: []agentwire.Notice{{Message: forged, Hint: forged}},
		Slots: []agentwire.CardSlot{{Slot: "9a", Key: forged, Algorithm: forged, Certificate: certificate}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if name, _, _ := strings.Cut(line, " "); !slices.Contains([]string{"card", "reader", "state", "hint", "note", "SLOT", "9a", ""}, name) {
			t.Errorf("a forged row: %q", line)
		}
	}
	if strings.ContainsAny(b.String(), "\x1b\r\u2028") {
		t.Errorf("got %q", b.String())
	}
}

func TestExplainOthers(t *testing.T) {
	p := explain(fmt.Errorf("reading: %w", os.ErrNotExist))
	if p.code != exitFailed || p.message != "reading: file does not exist" {
		t.Errorf("got %+v", p)
	}
	cause := &fault.Error{Kind: fault.Denied, Message: "no", Hint: "ask", Err: errors.New("deep down")}
	if p := explain(cause); p.message != "no" {
		t.Errorf("the cause is shown: %q", p.message)
	}
	if p := explain(fmt.Errorf("key alice: %w", cause)); !strings.HasPrefix(p.message, "key alice: no") || p.hint != "ask" {
		t.Errorf("wrapped: got %+v", p)
	}
}

// A lock that lasts is given as a time of the day.
func TestLockedUntil(t *testing.T) {
	for wait, want := range map[time.Duration]string{time.Hour: "wait; locked until " + clock(time.Now().Add(time.Hour)), 0: "wait"} {
		e := &fault.Error{Kind: fault.DeviceLocked, Hint: "wait", RetryAfter: wait}
		if got := hintOf(e); got != want && got != "wait; locked until "+clock(time.Now().Add(wait)) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := hintOf(&fault.Error{Kind: fault.Busy, RetryAfter: 2 * time.Second}); got != "try again in 2s" {
		t.Errorf("got %q", got)
	}
}
