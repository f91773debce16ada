package main

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// watchParent returns a channel that is closed when the agent has ended. Its end
// ends the standard input too, but another program that the agent was starting
// just then could still hold it open.
//
// The kernel tells of the thread that started this process, which may end long
// before the agent does. Hence a signal that can be looked into, and not SIGKILL.
// The calling goroutine must be locked to its thread, and stay: the kernel tells that one.
func watchParent() (<-chan struct{}, error) {
	parent, heard, gone := os.Getppid(), make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(heard, unix.SIGUSR1)
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGUSR1), 0, 0, 0); err != nil {
		return nil, fmt.Errorf("PR_SET_PDEATHSIG: %w", err)
	}
	go func() {
		for range heard {
			if os.Getppid() != parent {
				close(gone)
				return
			}
		}
	}()
	return gone, nil
}
