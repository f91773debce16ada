package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/internal/guard"
)

// confinedVariable makes the test program the confined process: nothing of this can
// be taken back.
const confinedVariable = "HOLDFAST_TEST_CONFINED"

func confined() int {
	if err := errors.Join(guard.HardenProcess(), confine()); err != nil {
		println(err.Error())
		return 1
	}
	done := make(chan bool)
	go func() { // on another thread: this one is locked to main
		_, inet := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		_, packet := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		local, unixErr := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		start := exec.Command("/bin/true").Run()
		println(inet.Error(), packet.Error(), local, start.Error())
		done <- inet == unix.EPERM && packet == unix.EPERM && unixErr == nil && errors.Is(start, syscall.EPERM)
	}()
	if !<-done {
		return 1
	}
	return 0
}

func TestConfine(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), confinedVariable+"=yes")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, text)
	}
}
