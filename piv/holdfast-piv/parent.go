package main

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// watchParent returns a channel that is closed when the agent has ended. That also
// ends the standard input, unless another program that the agent was starting at that
// moment still holds it open.
//
// The kernel sends the signal when the thread that started this process ends, which
// may be long before the agent does. So it is a signal that can be checked, and not
// SIGKILL. The calling goroutine must stay locked to its thread, which receives it.
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
