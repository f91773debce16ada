package swtpm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// A process is a running swtpm.
type process struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	done   chan struct{} // closed when the process has ended
}

// launch starts swtpm with its sockets at path and path.ctrl; tss2 libraries
// derive the second name from the first.
func launch(path, dir string) (*process, error) {
	program, err := exec.LookPath("swtpm")
	if err != nil {
		return nil, fmt.Errorf("%w: install the packages swtpm and swtpm-tools", err)
	}
	os.Remove(path) // a killed swtpm leaves its sockets behind
	os.Remove(path + ".ctrl")
	p := &process{done: make(chan struct{})}
	p.cmd = exec.Command(program, "socket", "--tpm2", "--tpmstate", "dir="+dir,
		"--server", "type=unixio,path="+path, "--ctrl", "type=unixio,path="+path+".ctrl",
		"--flags", "not-need-init,startup-clear")
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go p.run(started)
	return p, <-started
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
		_ = p.cmd.Wait() // always killed; the exit status says nothing
	}
}

// ready waits until the TPM answers a command.
func (p *process) ready(path string) error {
	for deadline := time.Now().Add(testTimeout); ; {
		if err := answers(path); err == nil {
			return nil
		} else if time.Now().After(deadline) {
			p.kill()
			return fmt.Errorf("no answer within %v: %w: %s", testTimeout, err, p.stderr.Bytes())
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended: %s", p.stderr.Bytes())
		case <-time.After(time.Millisecond):
		}
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}
