package e2e

import (
	"bytes"
	"encoding/pem"
	"net"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"holdfast/test/kube"
)

// buffer is a bytes.Buffer that goroutines share.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// eventually waits until check returns "", and fails with what it says instead.
func eventually(t testing.TB, what string, check func() string) {
	t.Helper()
	deadline := time.Now().Add(testTimeout)
	for {
		fault := check()
		if fault == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %s", what, fault)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// background starts a command that runs until the test ends.
func background(t testing.TB, name string, cmd *exec.Cmd) *kube.Process {
	t.Helper()
	p, err := kube.Run(name, filepath.Join(t.(*testing.T).TempDir(), "log"), cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// decode returns the certificates of a PEM text, DER.
func decode(text []byte) (chain [][]byte) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		chain = append(chain, block.Bytes)
	}
	return chain
}

// freePort finds a port of loopback on which no process listens at the moment.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}
