package main

import (
	"fmt"
	"syscall"
)

const prSetDumpable = 4 // PR_SET_DUMPABLE, prctl(2)

// harden keeps other processes of the same uid, and core files, from the credential
// in this process's memory. It runs before anything else.
func harden() error {
	if _, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0); e != 0 {
		return fmt.Errorf("PR_SET_DUMPABLE: %w", e)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("core size limit: %w", err)
	}
	return nil
}
