// Package faults_test breaks things under a running agent, from outside: the
// real holdfast-agent on a real software TPM, with power cuts, full disks,
// floods, slow callers and signals. Each test prints its seed and its counts.
//
// Start at [load], which keeps an agent signing while something breaks.
package faults_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"slices"
	"testing"
	"time"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
	"holdfast/test/daemon"
	"holdfast/test/pace"
)

// failed bounds the waits that end a test which has failed.
const failed = time.Minute

// slackFactor is how many times what a call takes here a limit has beside its own
// time.
const slackFactor = 20

// slack returns what a limit has beside its own time: many times what f takes, the
// slowest of some calls, on this machine in this run while nothing is broken.
func slack(t *testing.T, f func() error) time.Duration {
	t.Helper()
	return slackFactor * pace.Slowest(t, 5, f)
}

func TestMain(m *testing.M) {
	code := m.Run()
	daemon.Remove()
	os.Exit(code)
}

// Another uid that owns nothing and has no user on the machine.
const otherUID = 47123

// needRoot ends the test where it cannot become another user.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("a second uid is needed: run as root")
	}
}

func connect(t *testing.T, a *daemon.Agent) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), &client.Options{Socket: a.Socket})
	if err != nil {
		t.Fatalf("%v\n%s", err, a.Log())
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// within gives a call a deadline.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func create(t *testing.T, c *client.Client, p agentwire.CreateKeyParameters) agentwire.Key {
	t.Helper()
	if p.Purpose == "" {
		p.Purpose = string(keys.TLSClient)
	}
	k, err := c.CreateKey(within(t, failed), p)
	if err != nil {
		t.Fatalf("create %s: %v", p.Name, err)
	}
	return k
}

// verifyMessage is a client's TLS 1.3 CertificateVerify with a transcript hash
// of its own.
func verifyMessage() []byte {
	hash := make([]byte, 32)
	_, _ = rand.Read(hash) // never fails
	return slices.Concat(bytes.Repeat([]byte(" "), 64), []byte("TLS 1.3, client CertificateVerify\x00"), hash)
}

// sign has the key sign a new message and verifies the signature itself.
func sign(ctx context.Context, c *client.Client, k agentwire.Key) error {
	key, err := c.Key(ctx, k.Name)
	if err != nil {
		return err
	}
	return signWith(ctx, key, k)
}

func signWith(ctx context.Context, key *client.Key, k agentwire.Key) error {
	s, msg := keys.Scheme(k.Scheme), verifyMessage()
	signature, err := key.WithContext(ctx).SignMessage(nil, msg, s.SignerOpts())
	if err != nil {
		return err
	}
	public, err := keys.ParsePublic(k.PublicKey)
	if err != nil {
		return err
	}
	h := s.Hash().New()
	h.Write(msg)
	return keys.Verify(public, s, h.Sum(nil), signature)
}

// poll calls ok until it returns true, and returns how long that took.
func poll(t *testing.T, what string, limit time.Duration, ok func() bool) time.Duration {
	t.Helper()
	for start := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		if ok() {
			return time.Since(start)
		}
		if time.Since(start) > limit {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}
