package guard

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// HardenProcess keeps other processes of this uid from reading the process's memory,
// disables core files, gives up gaining privileges, and closes what the process
// creates to other users. Call it before any secret is in memory.
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

// noNewPrivileges sets the flag on all threads, since the kernel keeps one for each;
// new threads inherit it. A program with cgo, such as holdfast-piv, can set it on the
// calling thread only.
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
