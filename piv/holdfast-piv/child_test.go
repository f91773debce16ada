package main

import (
	"bytes"
	"encoding/base64"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/piv/wire"
	"holdfast/test/daemon"
	"holdfast/test/pivcard"
)

// testTimeout bounds every wait of a test.
const testTimeout = 30 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(confinedVariable) != "" {
		runtime.LockOSThread()
		os.Exit(confined())
	}
	code := m.Run()
	daemon.Remove()
	os.Exit(code)
}

// A child is a running holdfast-piv.
type child struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  bytes.Buffer
	id   uint64
	got  chan *wire.Reply
	done chan struct{} // closed when the process has ended
	once sync.Once
}

// start runs the child for a rig. It is killed when the test ends.
func start(t testing.TB, rig *pivcard.Rig) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(daemon.Program(t, daemon.PIVProgram)), got: make(chan *wire.Reply, 8), done: make(chan struct{})}
	c.launch(rig)
	return c
}

func (c *child) launch(rig *pivcard.Rig) {
	c.t.Helper()
	c.cmd.Env = append(os.Environ(), rig.Env()...)
	c.cmd.Stderr = &c.log
	in, err := c.cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.in = in
	go c.read(out)
	c.t.Cleanup(c.kill)
}

func (c *child) read(out io.Reader) {
	for {
		reply := new(wire.Reply)
		if wire.Read(out, reply) != nil {
			break
		}
		c.got <- reply
	}
	c.cmd.Wait()
	close(c.done)
}

func (c *child) kill() {
	c.once.Do(func() { c.cmd.Process.Kill() })
	<-c.done
	for _, secret := range []string{ownPIN, ownPUK, "271828", "666666", base64.StdEncoding.EncodeToString([]byte(ownPIN))} {
		if strings.Contains(c.log.String(), secret) {
			c.t.Errorf("the log holds %q: %s", secret, &c.log)
		}
	}
}

// ended waits until the process has ended by itself, and returns its exit code.
func (c *child) ended() int {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(testTimeout):
		c.t.Fatal("the child does not end")
	}
	return c.cmd.ProcessState.ExitCode()
}

// end closes the child's input and waits until it has gone, in order.
func (c *child) end() {
	c.t.Helper()
	c.in.Close()
	if code := c.ended(); code != 0 {
		c.t.Fatalf("exit code %d: %s", code, &c.log)
	}
}

// send sends a request without waiting for the reply, and returns its number.
func (c *child) send(r wire.Request) uint64 {
	c.t.Helper()
	c.id++
	r.ID = c.id
	if err := wire.Write(c.in, &r); err != nil {
		c.t.Fatalf("%s: %v", r.Op, err)
	}
	return r.ID
}

// answer waits for the next reply.
func (c *child) answer() *wire.Reply {
	c.t.Helper()
	select {
	case reply := <-c.got:
		return reply
	case <-c.done:
		c.t.Fatalf("the child has ended: %s", &c.log)
	case <-time.After(testTimeout):
		c.t.Fatal("no reply")
	}
	return nil
}

// do sends a request and returns its reply, which must carry its number.
func (c *child) do(r wire.Request) *wire.Reply {
	c.t.Helper()
	id := c.send(r)
	reply := c.answer()
	if reply.ID != id {
		c.t.Fatalf("%s: the reply is to %d, not %d", r.Op, reply.ID, id)
	}
	return reply
}

// must is do for what has to succeed.
func (c *child) must(r wire.Request) *wire.Reply {
	c.t.Helper()
	reply := c.do(r)
	if reply.Error != nil {
		c.t.Fatalf("%s: %+v", r.Op, *reply.Error)
	}
	return reply
}

// fails is do for what has to fail in this way.
func (c *child) fails(r wire.Request, kind fault.Kind) *wire.Error {
	c.t.Helper()
	reply := c.do(r)
	if reply.Error == nil || reply.Error.Kind != kind {
		c.t.Fatalf("%s: %+v, want %s; %s", r.Op, reply.Error, kind, &c.log)
	}
	return reply.Error
}
