// Command run runs a command of the Makefile and leaves nothing behind, also when
// it is interrupted or nobody reads its output any more.
//
//	build/test/run go test ./...
//
// The command gets a temporary directory of its own. When the command has ended,
// or after SIGINT, SIGTERM or SIGHUP, or when its parent has died, run kills every process that has the
// directory in its environment or its arguments, unmounts what is mounted in the
// directory and removes it. The exit status is the command's, or 128 and the number
// of the signal.
//
// run does not make itself the parent of processes that lose their own: tests of
// package ticket want init to get those.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// grace is how long an interrupted command may take to end by itself.
const grace = 10 * time.Second

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: run COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	status, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/run:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}

func run(line []string) (status int, err error) {
	dir, err := directory()
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, remove(dir)) }()
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil { // as /tmp is: tests have other users
		return 1, err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE)
	runtime.LockOSThread() // the parent-death signals, to run and to the command, are the thread's
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return 1, fmt.Errorf("prctl: %w", err)
	}
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its state tells
		close(ended)
	}()
	status = wait(cmd, signals, ended)
	return status, killAll(dir)
}

// directory makes the temporary directory. Its name is short: the path of a socket
// has at most 107 bytes.
func directory() (string, error) {
	for n := os.Getpid(); ; n++ {
		dir := filepath.Join(os.TempDir(), fmt.Sprintf("hf%d", n))
		if err := os.Mkdir(dir, 0o700); err == nil || !os.IsExist(err) {
			return dir, err
		}
	}
}

// wait returns the status of the command. A signal ends it.
func wait(cmd *exec.Cmd, signals <-chan os.Signal, ended <-chan struct{}) int {
	select {
	case <-ended:
		if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
			return 128 + int(ws.Signal())
		}
		return cmd.ProcessState.ExitCode()
	case s := <-signals:
		_ = cmd.Process.Signal(s) // from a terminal it has the signal already
		select {
		case <-ended:
		case <-time.After(grace):
		}
		return 128 + int(s.(syscall.Signal))
	}
}

// killAll kills the processes of the directory until none is left.
func killAll(dir string) error {
	for deadline := time.Now().Add(grace); ; time.Sleep(time.Millisecond) {
		left := processes(dir)
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v do not end", left)
		}
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// processes returns the processes that have the directory in their environment or
// their arguments. A zombie has neither.
func processes(dir string) (pids []int) {
	entries, _ := os.ReadDir("/proc") // without /proc there is nobody to find
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		for _, file := range []string{"environ", "cmdline"} {
			text, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), file)) // a process that has ended has none
			if bytes.Contains(text, []byte("="+dir+"\x00")) || bytes.Contains(text, []byte(dir+"/")) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// remove removes the directory and what is mounted in it.
func remove(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			if err := unix.Unmount(fields[1], unix.MNT_DETACH); err != nil {
				return fmt.Errorf("umount %s: %w", fields[1], err)
			}
		}
	}
	return os.RemoveAll(dir)
}
