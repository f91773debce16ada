package guard

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// HardenProcess makes the process's memory unreadable for its own uid and for core
// files, and what it creates unreadable for everybody else. It comes before
// anything that is worth reading is in memory.
func HardenProcess() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_DUMPABLE: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("core size limit: %w", err)
	}
	if err := noNewPrivileges(); err != nil {
		return fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	syscall.Umask(0o077)
	return nil
}

// noNewPrivileges sets what the kernel keeps for each thread apart, on all threads
// that there are; those to come have it from the ones that make them. Programs
// with cgo, which ours are in tests alone, can set it on the calling thread only.
func noNewPrivileges() error {
	_, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
	if e == syscall.ENOTSUP {
		return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	if e != 0 {
		return e
	}
	return nil
}
