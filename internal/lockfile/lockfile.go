// Package lockfile locks a directory or a socket's path for one process.
//
// Start at [Take].
package lockfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"holdfast/internal/guard"
)

// Take takes the lock at path (flock(2)) and writes this process's pid into the file,
// which it creates with mode 0600. Closing the file, or the end of the process, releases
// the lock. When another process has the lock, the error names the path and that
// process's pid. A file that another user may have written is an error.
func Take(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := take(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

func take(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := guard.CheckOwn(info); err != nil {
		return err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		pid, _ := io.ReadAll(io.LimitReader(f, 20)) // empty while the other process writes it
		return fmt.Errorf("already running, pid %s", strings.TrimSpace(string(pid)))
	}
	if err != nil {
		return fmt.Errorf("flock: %w", err)
	}
	// The pid is only for people, so a failed write is ignored: a daemon has to start on
	// a full disk too.
	if f.Truncate(0) == nil {
		fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return nil
}
