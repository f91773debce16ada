package kube

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A Process is a program that runs until it is killed. Its output goes to a
// file.
type Process struct {
	name string
	log  string // the path of the file
	cmd  *exec.Cmd
	done chan struct{}
}

// Run starts cmd. Its output is appended to the file log.
func Run(name, log string, cmd *exec.Cmd) (*Process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	cmd.Stdout, cmd.Stderr = file, file
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	p := &Process{name: name, log: log, cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// run starts the process and waits for it on one thread: the kernel sends the
// parent-death signal when the thread that forked ends, not the process.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // State tells
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// State says how the process ended. Ask when it has.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Pid returns the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process, at once, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Log returns what the process has written.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Tail returns the last lines of what the process has written.
func (p *Process) Tail(lines int) string {
	all := slices.Collect(strings.Lines(p.Log()))
	return fmt.Sprintf("-- %s:\n%s", p.name, strings.Join(all[max(0, len(all)-lines):], ""))
}

// Await waits until the process has written a line with a text in it, and
// returns what follows the text, up to end or the end of the line.
func (p *Process) Await(tb TB, text, end string) string {
	tb.Helper()
	for deadline := time.Now().Add(ReadyTimeout); ; {
		if _, rest, ok := strings.Cut(p.Log(), text); ok && strings.Contains(rest, "\n") {
			line, _, _ := strings.Cut(rest, "\n")
			line, _, _ = strings.Cut(line, end)
			return line
		}
		select {
		case <-p.Done():
			tb.Fatalf("%s ended (%s) before it wrote %q\n%s", p.name, p.State(), text, p.Log())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%s did not write %q\n%s", p.name, text, p.Log())
		}
	}
}
