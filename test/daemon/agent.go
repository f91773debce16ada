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

// patience bounds every wait. An agent answers within 50 ms on an idle machine;
// the rest is for a loaded one.
const patience = 20 * time.Second

// Options says how to start an agent. The zero value is a user's agent without
// a device.
type Options struct {
	Dir    string   // holds state and socket; a new private directory when empty
	Device string   // "none" when empty
	Args   []string // further arguments
	Env    []string // in addition to the test's own environment
	Wrap   []string // a command in front of the agent's
	UID    int      // when not 0: the uid and gid that the agent runs under
}

// An Agent is a holdfast-agent process.
type Agent struct {
	Dir    string
	State  string // its state directory
	Socket string // where it listens

	tb   TB
	cmd  *exec.Cmd
	log  lockedBuffer
	done chan struct{} // closed when the process has ended
}

// Start starts an agent and returns when it answers on its socket.
func Start(tb TB, o Options) *Agent {
	tb.Helper()
	a := Launch(tb, o)
	if err := a.Ready(); err != nil {
		tb.Fatalf("%v", err)
	}
	return a
}

// Launch starts an agent and does not wait for anything.
func Launch(tb TB, o Options) *Agent {
	tb.Helper()
	if o.Dir == "" {
		o.Dir = Dir(tb)
	}
	if o.Device == "" {
		o.Device = "none"
	}
	a := &Agent{Dir: o.Dir, State: filepath.Join(o.Dir, "state"), Socket: filepath.Join(o.Dir, "run", "agent.sock"), tb: tb, done: make(chan struct{})}
	if err := a.prepare(o.UID); err != nil {
		tb.Fatalf("%v", err)
	}
	line := append(o.Wrap, Program(tb, AgentProgram), "--state", a.State, "--socket", a.Socket, "--device", o.Device)
	a.cmd = exec.Command(line[0], append(line[1:], o.Args...)...)
	a.cmd.Env = append(append(cleanEnviron(), "HOME="+o.Dir), o.Env...)
	a.cmd.Stderr, a.cmd.Stdout = &a.log, &a.log
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if o.UID != 0 {
		a.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(o.UID), Gid: uint32(o.UID)}
	}
	tb.Cleanup(a.Kill)
	started := make(chan error)
	go a.run(started)
	if err := <-started; err != nil {
		tb.Fatalf("start the agent: %v", err)
	}
	return a
}

// prepare makes the directories, for uid when it is not 0.
func (a *Agent) prepare(uid int) error {
	for _, dir := range []string{a.State, filepath.Dir(a.Socket)} {
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
	return os.Chmod(a.Dir, 0o711)
}

// run starts the process and waits for it on one thread: the kernel sends the
// parent-death signal when the thread that forked ends, not the process.
func (a *Agent) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(a.done)
	err := a.cmd.Start()
	started <- err
	if err == nil {
		_ = a.cmd.Wait() // Exit tells
	}
}

// cleanEnviron is the environment without what would tell the agent about
// somebody's configuration, other sockets or a service manager.
func cleanEnviron() []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HOLDFAST_SOCKET", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES":
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

// Ready returns when the agent takes connections, and an error when it ends
// instead.
func (a *Agent) Ready() error {
	for deadline := time.Now().Add(patience); ; {
		conn, err := net.Dial("unix", a.Socket)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the agent does not listen on %s: %w\n%s", a.Socket, err, a.Log())
		}
		select {
		case <-a.done:
			return fmt.Errorf("the agent ended with status %d:\n%s", a.cmd.ProcessState.ExitCode(), a.Log())
		case <-time.After(time.Millisecond):
		}
	}
}

// Exit waits until the agent has ended and returns its exit status, or -1 when
// a signal ended it.
func (a *Agent) Exit() int {
	a.tb.Helper()
	select {
	case <-a.done:
	case <-time.After(patience):
		a.tb.Fatalf("the agent is still running:\n%s", a.Log())
	}
	return a.cmd.ProcessState.ExitCode()
}

// Running reports whether the process is there.
func (a *Agent) Running() bool {
	select {
	case <-a.done:
		return false
	default:
		return true
	}
}

// Pid returns the process's id.
func (a *Agent) Pid() int { return a.cmd.Process.Pid }

// Signal sends a signal.
func (a *Agent) Signal(s syscall.Signal) {
	a.tb.Helper()
	if err := a.cmd.Process.Signal(s); err != nil {
		a.tb.Fatalf("%v: %v", s, err)
	}
}

// Kill sends SIGKILL and waits until the process is gone. Killing a dead agent
// does nothing.
func (a *Agent) Kill() {
	_ = a.cmd.Process.Kill()
	<-a.done
}

// Stop sends SIGTERM and returns the exit status.
func (a *Agent) Stop() int {
	a.tb.Helper()
	a.Signal(syscall.SIGTERM)
	return a.Exit()
}

// Log returns what the agent has written to its standard error so far.
func (a *Agent) Log() string { return a.log.String() }

// WaitLog returns when the agent has written text n times.
func (a *Agent) WaitLog(text string, n int) {
	a.tb.Helper()
	for deadline := time.Now().Add(patience); strings.Count(a.Log(), text) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			a.tb.Fatalf("the agent did not write %q:\n%s", text, a.Log())
		}
	}
}

// Open lets every uid reach the socket, so that only the agent is left to say
// no to them.
func (a *Agent) Open() {
	a.tb.Helper()
	for path, mode := range map[string]os.FileMode{a.Dir: 0o711, filepath.Dir(a.Socket): 0o711, a.Socket: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			a.tb.Fatalf("%v", err)
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
