package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/piv/wire"
	"holdfast/test/daemon"
	"holdfast/test/pivcard"
)

// TestOrphan kills the process that started the child, while another one still
// holds its input open.
func TestOrphan(t *testing.T) {
	parent := exec.Command("sh", "-c", `exec 3<&0; "$0" <&3 & wait`, daemon.Program(t, daemon.PIVProgram))
	in, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	parent.Stdout = write
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer parent.Process.Kill()
	write.Close()
	if err := wire.Write(in, &wire.Request{ID: 1, Op: wire.Lock}); err != nil {
		t.Fatal(err)
	}
	read.SetReadDeadline(time.Now().Add(testTimeout))
	if err := wire.Read(read, new(wire.Reply)); err != nil {
		t.Fatal(err) // it is not up
	}
	parent.Process.Kill()
	if n, err := read.Read(make([]byte, 1)); n != 0 || os.IsTimeout(err) {
		t.Errorf("the child outlives its parent: %d, %v", n, err)
	}
	parent.Wait()
}

// TestThreadOfParent ends the thread that started the child, and not its process.
func TestThreadOfParent(t *testing.T) {
	rig := pivcard.Start(t, 2)
	started := make(chan *child)
	var thread int
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		thread = unix.Gettid()
		c := start(t, rig)
		c.must(wire.Request{Op: wire.Lock})
		started <- c
	}()
	c := <-started
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread)); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the thread does not end")
		}
	}
	c.must(wire.Request{Op: wire.Readers})
	c.end()
}
