// Package swtpm gives a test a software TPM 2.0 of its own: a private swtpm
// process on Unix sockets, ready after about 10 ms and gone with its test.
//
// Start at [Start]. [TPM] has the faults that a test needs (stop, kill, reset,
// clear, another TPM behind the same socket), and [NewProxy] puts something
// between a client and the TPM that counts, delays, listens, cuts and forges,
// and that can behave like the kernel's resource manager.
//
// swtpm serves one connection at a time and has no resource manager: three
// transient objects, three sessions. A client that holds the connection keeps
// every other one waiting, the methods of [TPM] that talk to the device
// included; those that speak to the control socket work at any time. Nothing
// here says how fast or how safe a TPM chip is.
package swtpm

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// A TB is what the package wants of a test. Every [testing.TB] is one; a
// program that is no test, such as a benchmark, brings its own.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// testTimeout bounds every wait for swtpm. It answers within 15 ms on an idle
// machine; the rest is for a loaded one.
const testTimeout = 10 * time.Second

// A TPM is one swtpm and the sockets it serves. Its methods end the test when
// they fail and, like the test's own Fatal, belong to the test's goroutine.
type TPM struct {
	Path string // the data socket; the control socket is Path + ".ctrl"
	Dir  string // the state directory

	tb   TB
	mu   sync.Mutex // held while the process changes
	proc *process   // nil when killed
}

// Start starts a new TPM, which has been through TPM2_Startup(CLEAR). It is
// killed when tb ends, and by the kernel when the test process dies.
func Start(tb TB) *TPM {
	tb.Helper()
	return StartIn(tb, tempDir(tb))
}

// StartIn starts a TPM on the state that another one has left in dir, behind
// new sockets. No other swtpm may be using dir.
func StartIn(tb TB, dir string) *TPM {
	tb.Helper()
	t := &TPM{Path: filepath.Join(tempDir(tb), "s"), Dir: dir, tb: tb}
	tb.Cleanup(t.Kill)
	t.start()
	return t
}

// Device returns the TPM's name as holdfast-agent takes it: swtpm:PATH.
func (t *TPM) Device() string { return "swtpm:" + t.Path }

// Env returns the environment that points tpm2-tools and tpm2-openssl at the
// TPM, to be appended to os.Environ(). They wait for ever when another program
// holds the connection.
func (t *TPM) Env() []string {
	tcti := "swtpm:path=" + t.Path
	return []string{"TPM2TOOLS_TCTI=" + tcti, "TPM2OPENSSL_TCTI=" + tcti, "TCTI=" + tcti}
}

// Stop sends SIGSTOP: commands go in and no answers come out until Cont.
func (t *TPM) Stop() { t.tb.Helper(); t.signal(syscall.SIGSTOP) }

// Cont lets a stopped TPM go on.
func (t *TPM) Cont() { t.tb.Helper(); t.signal(syscall.SIGCONT) }

// Kill is the power cut: SIGKILL, with no TPM2_Shutdown before it. It returns
// when the process is gone. Killing a dead TPM does nothing.
func (t *TPM) Kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.proc != nil {
		t.proc.kill()
		t.proc = nil
	}
}

// Restart kills the TPM and starts it again on the same state and sockets.
func (t *TPM) Restart() { t.tb.Helper(); t.RestartIn(t.Dir) }

// RestartIn kills the TPM and puts the one whose state is in dir behind the
// same sockets, as if the board had been swapped.
func (t *TPM) RestartIn(dir string) {
	t.tb.Helper()
	t.Kill()
	t.Dir = dir
	t.start()
}

// Pid returns the process's id, or 0 when it has been killed.
func (t *TPM) Pid() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.proc == nil {
		return 0
	}
	return t.proc.cmd.Process.Pid
}

func (t *TPM) start() {
	t.tb.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	p, err := launch(t.Path, t.Dir)
	if err != nil {
		t.tb.Fatalf("swtpm: %v", err)
	}
	t.proc = p
	if err := p.ready(t.Path); err != nil {
		t.tb.Fatalf("swtpm: %v", err)
	}
}

func (t *TPM) signal(s syscall.Signal) {
	t.tb.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.proc == nil {
		t.tb.Fatalf("swtpm: %v: the TPM is not running", s)
		return
	}
	if err := t.proc.cmd.Process.Signal(s); err != nil {
		t.tb.Fatalf("swtpm: %v: %v", s, err)
	}
}

// tempDir makes a directory whose name is short: a socket's path has at most
// 107 bytes, which the directories of testing.T can exceed.
func tempDir(tb TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "swtpm-")
	if err != nil {
		tb.Fatalf("swtpm: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
