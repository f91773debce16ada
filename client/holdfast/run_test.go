package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"holdfast/client/clienttest"
	"holdfast/internal/keys"
)

// result is what a command line came to.
type result struct {
	code           int
	stdout, stderr string
}

// command is one command line, with an agent's socket and no terminal unless a
// test gives one.
type command struct {
	socket   string
	stdin    string
	terminal func() (*os.File, error)
}

func (c command) run(args ...string) result {
	var stdout, stderr synced
	code := c.runTo(&stdout, &stderr, args...)
	return result{code, stdout.String(), stderr.String()}
}

// runTo is run for those who look at the output meanwhile.
func (c command) runTo(stdout, stderr *synced, args ...string) int {
	if c.terminal == nil {
		c.terminal = func() (*os.File, error) { return nil, errors.New("no terminal") }
	}
	if c.socket != "" {
		args = append([]string{"--socket", c.socket}, args...)
	}
	return run(context.Background(), args, streams{strings.NewReader(c.stdin), stdout, stderr, c.terminal})
}

// synced is a buffer that a copying goroutine may still write to when a command
// has ended.
type synced struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *synced) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *synced) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// want fails the test unless a command ended with code and said all of the
// texts, in stdout when it is done and in stderr when it is not.
func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	out := r.stdout
	if code != exitDone {
		out = r.stderr
	}
	if r.code != code {
		t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			t.Errorf("got %q, want it to say %q", out, text)
		}
	}
}

// withAlice starts a stand-in agent that has a tls-client key alice.
func withAlice(t *testing.T) (*clienttest.Agent, command) {
	t.Helper()
	agent := clienttest.Start(t)
	agent.AddKey("alice", keys.TLSClient, keys.ES256)
	return agent, command{socket: agent.Socket}
}

// file writes a file for the test and returns its path.
func file(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
