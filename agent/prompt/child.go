package prompt

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// grace is how long a pinentry has to end by itself: to give the screen back.
const grace = 500 * time.Millisecond

// A child is a running pinentry. It has a session of its own, so that no terminal
// is its controlling one: it may use the caller's from outside, as a background
// process of this agent's could not. It ends with this process.
type child struct {
	cmd  *exec.Cmd
	in   *os.File // what it reads
	out  *os.File // what it writes
	done chan struct{}
}

// launch starts a program without arguments.
func launch(path string, env []string) (*child, error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirIn.Close()
	out, theirOut, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer theirOut.Close()
	c := &child{in: in, out: out, done: make(chan struct{})}
	c.cmd = &exec.Cmd{
		Path: path, Args: []string{path}, Env: env, Dir: "/", Stdin: theirIn, Stdout: theirOut,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	started := make(chan error)
	go c.run(started)
	if err := <-started; err != nil {
		in.Close()
		out.Close()
		return nil, err
	}
	return c, nil
}

// run starts the program and waits for it on one thread, since the kernel sends
// the parent-death signal when the thread that forked ends.
func (c *child) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.done)
	err := c.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	pid := c.cmd.Process.Pid
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	// What the program has started ends with it. Until it is waited for, nobody
	// else's group can have its number.
	_ = unix.Kill(-pid, unix.SIGKILL)
	_ = c.cmd.Wait() // how it ended says nothing that its replies did not
}

// expire makes reading from the child and writing to it fail, now and later.
func (c *child) expire() {
	past := time.Unix(1, 0)
	_ = c.out.SetReadDeadline(past)
	_ = c.in.SetWriteDeadline(past)
}

// end ends the child and returns when it is gone. One that was left in the middle
// of something is asked to clean up first.
func (c *child) end(orderly bool) {
	c.in.Close()
	if !orderly || !c.ended(grace) {
		_ = c.cmd.Process.Signal(unix.SIGTERM) // it may have ended
		if !c.ended(grace) {
			_ = c.cmd.Process.Kill()
		}
	}
	<-c.done
	c.out.Close()
}

func (c *child) ended(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.done:
		return true
	case <-timer.C:
		return false
	}
}
