package piv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"holdfast/piv/wire"
)

// The reasons why a child ended.
var (
	errLate      = errors.New("it did not answer in time")
	errMalformed = errors.New("it sent a malformed message")
	errEnded     = errors.New("it ended by itself")
	errStopped   = errors.New("it was stopped")

	// Only the end of the child cancels the wait for a touch.
	errAbandoned = errors.New("no caller waited for its answer")
)

// A child is one running holdfast-piv. It is always killed and reaped, and then
// closes ended.
type child struct {
	cmd     *exec.Cmd
	in      *os.File // our end of its standard input
	writing sync.Mutex

	mu      sync.Mutex // guards the next three
	last    uint64     // number of the last request
	waiting map[uint64]chan *wire.Reply
	fault   error // the reason for its end; nil while it runs

	ended chan struct{} // closed when it is reaped
}

// startChild starts the program of c.
func startChild(c Config) (*child, error) {
	cmd := &exec.Cmd{
		Path: c.Program, Args: []string{c.Program}, Dir: "/", Env: childEnv(c.Socket),
		// A group of its own: only the agent acts on a terminal's Ctrl-C.
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdin = theirs
	err = cmd.Start()
	_ = theirs.Close() // the child has its own copy
	if err != nil {
		_ = ours.Close() // nothing was written
		return nil, err
	}
	k := &child{cmd: cmd, in: ours, waiting: map[uint64]chan *wire.Reply{}, ended: make(chan struct{})}
	go k.run(stdout, stderr, c.Log.With("child", cmd.Process.Pid))
	return k, nil
}

// run reads the child's output until the child ends, and reaps it.
func (c *child) run(stdout, stderr io.Reader, log *slog.Logger) {
	logged := make(chan struct{})
	go func() { logLines(log, stderr); close(logged) }()
	c.kill(c.listen(stdout))
	<-logged
	why, level := c.why(), slog.LevelWarn
	if errors.Is(why, errStopped) || errors.Is(why, errAbandoned) {
		level = slog.LevelDebug
	}
	c.reap()
	log.Log(context.Background(), level, "holdfast-piv ended", "why", why, "state", c.cmd.ProcessState.String())
}

// childEnv returns the variables that libpcsclite reads, and none of the agent's
// others.
func childEnv(socket string) []string {
	env := []string{}
	for _, name := range []string{"PCSCLITE_CSOCK_NAME", "PCSCLITE_NO_BLOCKING"} {
		value, ok := os.LookupEnv(name)
		if name == "PCSCLITE_CSOCK_NAME" && socket != "" {
			value, ok = socket, true
		}
		if ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// kill ends the child. Only the first reason is kept.
func (c *child) kill(why error) {
	c.mu.Lock()
	if c.fault == nil {
		c.fault = why
	}
	c.mu.Unlock()
	_ = c.cmd.Process.Kill() // it may have ended before
}

func (c *child) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault
}

// reap waits for the killed child and fails the requests that wait for a reply.
func (c *child) reap() {
	_ = c.cmd.Wait() // it was killed: its status says nothing more
	_ = c.in.Close() // it has no reader
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, reply := range c.waiting {
		delete(c.waiting, id)
		close(reply)
	}
	close(c.ended)
}

// stop ends the child. An idle child gets a moment to make the card forget the PIN
// that was verified.
func (c *child) stop(moment time.Duration) {
	c.mu.Lock()
	idle := len(c.waiting) == 0 && c.fault == nil
	if c.fault == nil {
		c.fault = errStopped
	}
	c.mu.Unlock()
	if idle {
		_ = c.in.Close() // the child ends with its input
		select {
		case <-c.ended:
		case <-time.After(moment):
		}
	}
	c.kill(errStopped)
	<-c.ended
}

// dead reports whether the child has ended or is about to.
func (c *child) dead() bool { return c.why() != nil }

// call sends r and waits for the reply. It kills the child when limit expires first;
// a duration received from shorten replaces the rest of limit if that is longer. It wipes r's secrets
// once r is sent. Errors are of type *deathError.
func (c *child) call(r *wire.Request, limit time.Duration, shorten <-chan time.Duration) (*wire.Reply, error) {
	replies, err := c.send(r, limit)
	if err != nil {
		c.kill(errEnded)
		return nil, &deathError{c.why()}
	}
	end, timer := time.Now().Add(limit), time.NewTimer(limit)
	defer timer.Stop()
	for late := errLate; ; {
		select {
		case reply, ok := <-replies:
			if !ok {
				return nil, &deathError{c.why()}
			}
			return reply, nil
		case left := <-shorten:
			shorten = nil
			timer.Reset(min(left, time.Until(end)))
			if left == 0 {
				late = errAbandoned
			}
		case <-timer.C:
			c.kill(late)
			<-c.ended
			return nil, &deathError{c.why()}
		}
	}
}

// send numbers r and writes it. It fails when the child has not read it within
// limit.
func (c *child) send(r *wire.Request, limit time.Duration) (<-chan *wire.Reply, error) {
	defer r.Wipe()
	reply := make(chan *wire.Reply, 1)
	c.mu.Lock()
	if c.fault != nil {
		c.mu.Unlock()
		return nil, c.fault
	}
	c.last++
	r.ID = c.last
	c.waiting[r.ID] = reply
	c.mu.Unlock()
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.in.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	return reply, wire.Write(c.in, r)
}

// A deathError is the reason why a child ended while a request was in flight.
type deathError struct{ why error }

func (e *deathError) Error() string { return fmt.Sprintf("holdfast-piv: %v", e.why) }
func (e *deathError) Unwrap() error { return e.why }
