// Package role lets a test binary play parts in its own tests: the test starts a
// copy of itself as a process with a parent, a user, a namespace or connections of
// its own.
//
// Start at [Main], which a package's TestMain calls, and at [Start], which starts a
// process in a role. A process ends with its test, and the kernel kills it when
// the test process dies first.
package role

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Variable is the environment variable that names the role of a process.
const Variable = "HOLDFAST_TEST_ROLE"

// timeout bounds every wait for a process. It ends a test that has failed.
const timeout = time.Minute

// Main runs the tests of a package, or plays the role that [Variable] names. It
// does not return. A test run that leaves goroutines behind fails.
func Main(m *testing.M, play func(role string, args []string) error) {
	if name := os.Getenv(Variable); name != "" {
		if err := play(name, os.Args[1:]); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if path, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// program copies the test binary to where every user may run it: go test keeps its
// own in a directory that is closed to other users.
var program = sync.OnceValues(func() (string, error) {
	directory, err := os.MkdirTemp("", "hf-role-")
	if err != nil {
		return "", err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	path := filepath.Join(directory, "caller")
	return path, errors.Join(os.Chmod(directory, 0o755), os.WriteFile(path, self, 0o755), os.Chmod(path, 0o755))
})

// Program returns the path of a copy of the test binary that every user may run.
func Program(tb testing.TB) string {
	tb.Helper()
	path, err := program()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// Environ returns the whole environment of a process in a role. The race detector
// of a process would sleep for a second at its end.
func Environ(name string) []string {
	return []string{Variable + "=" + name, "GORACE=atexit_sleep_ms=0"}
}

// A Process is a copy of the test binary that plays a role.
type Process struct {
	Cmd *exec.Cmd
	In  io.WriteCloser // the standard input of the process
	Out *bufio.Reader  // what the process prints

	tb    testing.TB
	ended chan struct{} // closed when the process is no longer wanted
	once  sync.Once
}

// Options say how a process starts.
type Options struct {
	Role       string
	Env        []string // beside [Environ]
	Attributes *syscall.SysProcAttr
}

// Start starts a process in a role, with arguments. It ends with the test.
func Start(tb testing.TB, o Options, args ...string) *Process {
	tb.Helper()
	cmd := exec.Command(Program(tb), args...)
	cmd.Env = append(Environ(o.Role), o.Env...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if o.Attributes != nil {
		cmd.SysProcAttr = o.Attributes
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	read, write, err := os.Pipe() // not StdoutPipe: a child of the process may print after the process has ended
	if err != nil {
		tb.Fatal(err)
	}
	cmd.Stdout = write
	p := &Process{Cmd: cmd, In: in, Out: bufio.NewReader(read), tb: tb, ended: make(chan struct{})}
	started := make(chan error)
	go p.start(started)
	err = <-started
	_ = write.Close()
	tb.Cleanup(func() {
		p.Kill()
		_ = in.Close()
		_ = read.Close()
	})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// start starts the process and keeps its thread until the process is no longer
// wanted: the kernel sends the parent-death signal when the thread that forked
// ends, not the process.
func (p *Process) start(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	started <- p.Cmd.Start()
	<-p.ended
}

// Line returns the next line that the process prints.
func (p *Process) Line() string {
	p.tb.Helper()
	timer := time.AfterFunc(timeout, func() { _ = p.Cmd.Process.Kill() })
	defer timer.Stop()
	line, err := p.Out.ReadString('\n')
	if err != nil {
		p.tb.Fatalf("got %q, %v, want a line", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// Expect reads a line, which must be want.
func (p *Process) Expect(want string) {
	p.tb.Helper()
	if got := p.Line(); got != want {
		p.tb.Fatalf("got %q, want %q", got, want)
	}
}

// Resume writes an empty line to the standard input of the process.
func (p *Process) Resume() {
	p.tb.Helper()
	if _, err := io.WriteString(p.In, "\n"); err != nil {
		p.tb.Fatal(err)
	}
}

// Pid returns the process's id.
func (p *Process) Pid() int32 { return int32(p.Cmd.Process.Pid) }

// Kill ends the process and waits until it is gone. Killing a process that has
// ended does nothing.
func (p *Process) Kill() {
	p.once.Do(func() {
		if p.Cmd.Process != nil {
			_ = p.Cmd.Process.Kill()
			_ = p.Cmd.Wait()
		}
		close(p.ended)
	})
}

// Steps takes steps one by one. A step is a word and perhaps "=" and a value.
func Steps(steps []string, take func(word, value string) error) error {
	for _, step := range steps {
		word, value, _ := strings.Cut(step, "=")
		if err := take(word, value); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	return nil
}
