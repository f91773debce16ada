package peer

import (
	"errors"

	"golang.org/x/sys/unix"

	"holdfast/internal/proc"
)

// startTime returns 0 for a process that /proc does not show, which is not an
// error where /proc is mounted with hidepid.
func startTime(pid int32) (uint64, error) {
	s, err := proc.ReadStat(pid)
	return s.Start, unlessHidden(err)
}

// unlessHidden returns nil for the errors of reading a file of a process that /proc
// hides or that has ended. Any other error, such as that this process is out of
// descriptors or memory, says nothing about the process.
func unlessHidden(err error) error {
	for _, hidden := range []error{unix.ENOENT, unix.ESRCH, unix.EACCES, unix.EPERM} {
		if errors.Is(err, hidden) {
			return nil
		}
	}
	return err
}
