// Command run runs a command of the Makefile and leaves nothing behind, also when
// it is interrupted or nobody reads its output any more.
//
//	build/test/run go test ./...
//
// The command gets a temporary directory of its own. When the command has ended,
// or after SIGINT, SIGTERM or SIGHUP, run kills every process that descends from
// it, unmounts what is mounted in the directory and removes it. The exit status is
// the command's, or 128 and the number of the signal.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
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
	defer func() { err = remove(dir) }()
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil { // as /tmp is: tests have other users
		return 1, err
	}
	// What loses its parent becomes a child of this process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1, err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE)
	runtime.LockOSThread() // the parent-death signal comes when the thread ends
	path, err := exec.LookPath(line[0])
	if err != nil {
		return 1, err
	}
	pid, err := syscall.ForkExec(path, line, &syscall.ProcAttr{
		Env:   append(os.Environ(), "TMPDIR="+dir),
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 1, fmt.Errorf("%s: %w", path, err)
	}
	ended := make(chan int, 1)
	reaped := make(chan struct{})
	go func() {
		defer close(reaped)
		reap(pid, ended)
	}()
	status = wait(pid, signals, ended)
	killAll(reaped)
	return status, nil
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

// reap waits for the command, whose status it reports, and for every process that
// has lost its parent, until none is left. A dead process that nobody waits for
// would still have its pid.
func reap(command int, ended chan<- int) {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil: // no children are left
			return
		case pid == command && ws.Signaled():
			ended <- 128 + int(ws.Signal())
		case pid == command:
			ended <- ws.ExitStatus()
		}
	}
}

// wait returns the status of the command. A signal ends it.
func wait(command int, signals <-chan os.Signal, ended <-chan int) int {
	select {
	case status := <-ended:
		return status
	case s := <-signals:
		signal := s.(syscall.Signal)
		_ = unix.Kill(command, signal) // from a terminal it has the signal already
		select {
		case <-ended:
		case <-time.After(grace):
		}
		return 128 + int(signal)
	}
}

// killAll kills the children of this process until none is left. The children of
// each become its own.
func killAll(reaped <-chan struct{}) {
	for {
		for _, pid := range children() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		select {
		case <-reaped:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// children returns the children of this process, of every thread.
func children() (pids []int) {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread that has ended has none
		for _, field := range strings.Fields(string(text)) {
			var pid int
			if _, err := fmt.Sscan(field, &pid); err == nil {
				pids = append(pids, pid)
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
