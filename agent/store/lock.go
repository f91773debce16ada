package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lock locks the state directory for this process until the file is closed. The
// kernel releases the lock when the process ends.
func lock(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := claim(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

func claim(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := checkFile(info); err != nil {
		return err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("already running%s", holder(f))
	}
	if err != nil {
		return fmt.Errorf("flock: %w", err)
	}
	// The pid is only for people, so a failed write is ignored: the agent has to
	// start on a full disk too.
	if f.Truncate(0) == nil {
		fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return nil
}

// holder returns " pid N" when the file holds a pid.
func holder(f *os.File) string {
	text, _ := io.ReadAll(io.LimitReader(f, 20))
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && pid > 0 {
		return fmt.Sprintf(" pid %d", pid)
	}
	return ""
}
