package daemon

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a daemon's process and where it keeps its things.
type process struct {
	Dir    string
	State  string // its state directory
	Socket string // where it listens

	name  string
	tb    TB
	cmd   *exec.Cmd
	files []*os.File // passed as descriptors 3 and so on
	log   lockedBuffer
	done  chan struct{} // closed when the process has ended
}

func newProcess(tb TB, name, dir string) *process {
	return &process{
		Dir: dir, State: filepath.Join(dir, "state"), Socket: filepath.Join(dir, "run", name+".sock"),
		name: name, tb: tb, done: make(chan struct{}),
	}
}

// start starts the command line, as uid when it is not 0.
func (p *process) start(line, env []string, uid int) {
	p.tb.Helper()
	p.cmd = exec.Command(line[0], line[1:]...)
	p.cmd.Env = append(append(cleanEnviron(), "HOME="+p.Dir), env...)
	p.cmd.ExtraFiles = p.files
	p.cmd.Stderr, p.cmd.Stdout = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if uid != 0 {
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	p.tb.Cleanup(p.Kill)
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		p.tb.Fatalf("start the %s: %v", p.name, err)
	}
}

// prepare makes the directories, for uid when it is not 0.
func (p *process) prepare(uid int) error {
	for _, dir := range []string{p.State, filepath.Dir(p.Socket)} {
		if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
			return err
		}
		if uid == 0 {
			continue
		}
		if err := os.Chown(dir, uid, uid); err != nil {
			return err
		}
	}
	if uid == 0 {
		return nil
	}
	return os.Chmod(p.Dir, 0o711)
}

// run starts the process and waits for it on one thread: the kernel sends the
// parent-death signal when the thread that forked ends, not the process.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // Exit tells
	}
}

// cleanEnviron is the environment without what would tell a daemon about
// a user's configuration, other sockets or a service manager.
func cleanEnviron() []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HOLDFAST_SOCKET", "HOLDFAST_BROKER_SOCKET", "DBUS_SESSION_BUS_ADDRESS", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES":
		default:
			env = append(env, v)
		}
	}
	return env
}

// Dir makes a private directory whose name is short: a socket's path has at
// most 107 bytes.
func Dir(tb TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "hf-")
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Ready returns when the daemon takes connections, and an error when it ends
// instead.
func (p *process) Ready() error {
	for deadline := time.Now().Add(testTimeout); ; {
		conn, err := net.Dial("unix", p.Socket)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the %s does not listen on %s: %w\n%s", p.name, p.Socket, err, p.Log())
		}
		select {
		case <-p.done:
			return fmt.Errorf("the %s ended with status %d:\n%s", p.name, p.cmd.ProcessState.ExitCode(), p.Log())
		case <-time.After(time.Millisecond):
		}
	}
}

// Exit waits until the daemon has ended and returns its exit status, or -1 when
// a signal ended it.
func (p *process) Exit() int {
	p.tb.Helper()
	select {
	case <-p.done:
	case <-time.After(testTimeout):
		p.tb.Fatalf("the %s is still running:\n%s", p.name, p.Log())
	}
	return p.cmd.ProcessState.ExitCode()
}

// Running reports whether the process is there.
func (p *process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Pid returns the process's id.
func (p *process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal.
func (p *process) Signal(s syscall.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.tb.Fatalf("%v: %v", s, err)
	}
}

// Kill sends SIGKILL and waits until the process is gone. Killing a dead daemon
// does nothing.
func (p *process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Stop sends SIGTERM and returns the exit status.
func (p *process) Stop() int {
	p.tb.Helper()
	p.Signal(syscall.SIGTERM)
	return p.Exit()
}

// Log returns what the daemon has written to its standard error so far.
func (p *process) Log() string { return p.log.String() }

// WaitLog returns when the daemon has written text n times.
func (p *process) WaitLog(text string, n int) {
	p.tb.Helper()
	for deadline := time.Now().Add(testTimeout); strings.Count(p.Log(), text) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.tb.Fatalf("the %s did not write %q:\n%s", p.name, text, p.Log())
		}
	}
}

// Open lets every uid reach the socket, so that only the daemon is left to say
// no to them.
func (p *process) Open() {
	p.tb.Helper()
	for path, mode := range map[string]os.FileMode{p.Dir: 0o711, filepath.Dir(p.Socket): 0o711, p.Socket: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			p.tb.Fatalf("%v", err)
		}
	}
}

// lockedBuffer is a bytes.Buffer that two goroutines share.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
