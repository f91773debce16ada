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

// grace is how long a pinentry may take to restore the screen and end by itself.
const grace = 500 * time.Millisecond

// A child is a running pinentry. It has a session of its own and no controlling
// terminal, so that job control does not stop it when it uses the caller's
// terminal. It ends with this process.
type child struct {
	cmd  *exec.Cmd
	in   *os.File // the other end of its standard input
	out  *os.File // the other end of its standard output
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
	// The program's own children end with it. Until Wait, no other process group
	// can have its number.
	_ = unix.Kill(-pid, unix.SIGKILL)
	_ = c.cmd.Wait() // its replies already carry the outcome
}

// expire makes every read from the child and write to it fail from now on.
func (c *child) expire() {
	past := time.Unix(1, 0)
	_ = c.out.SetReadDeadline(past)
	_ = c.in.SetWriteDeadline(past)
}

// end ends the child and returns when it has ended. A child that did not finish its
// conversation (not orderly) gets SIGTERM first, so that it restores the screen.
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
