package desktop

import (
	"bytes"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A process is a program on the bus.
type process struct {
	tb   TB
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu     sync.Mutex
	output bytes.Buffer
}

// Write keeps what the program says.
func (p *process) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(data)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// start starts a program with input on its standard input.
func start(tb TB, env []string, input string, line ...string) *process {
	tb.Helper()
	p := &process{tb: tb, done: make(chan struct{})}
	p.cmd = exec.Command(line[0], line[1:]...)
	p.cmd.Env, p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = env, strings.NewReader(input), p, p
	// Killed when the test is; a process group of its own, so that what the bus
	// has started ends with the bus.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	tb.Cleanup(p.kill)
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		tb.Fatalf("%v: test/setup says which packages are wanted", err)
	}
	return p
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
		_ = p.cmd.Wait() // killed, or its output says why it ended
	}
}

// wait returns when ready does without an error.
func (p *process) wait(what string, ready func() error) {
	p.tb.Helper()
	for deadline := time.Now().Add(testTimeout); ; {
		err := ready()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			p.tb.Fatalf("%s is not ready: %v\n%s", what, err, p.said())
		}
		select {
		case <-p.done:
			p.tb.Fatalf("%s ended: %s", what, p.said())
		case <-time.After(time.Millisecond):
		}
	}
}

func (p *process) signal(s syscall.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.tb.Fatalf("%v: %v", s, err)
	}
}

// kill ends the process and all of its group.
func (p *process) kill() {
	if p.cmd.Process != nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
}
