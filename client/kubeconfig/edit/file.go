package edit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"holdfast/client/kubeconfig"
	"holdfast/internal/atomicfile"
)

// ErrLocked is in the chain of errors about files that another program edits.
var ErrLocked = errors.New("another program is editing it")

// pollLock is the time between two tries to lock: programs hold a lock for
// milliseconds.
const pollLock = 20 * time.Millisecond

// File replaces the text of the file at path with the result of change, whole or not
// at all. It keeps owner and mode, follows a symbolic link, and does not write an
// unchanged text. It holds the lock of kubectl config (PATH.lock, made with O_EXCL),
// for which it waits until ctx ends.
func File(ctx context.Context, path string, change func([]byte) ([]byte, error)) error {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return err
	}
	// Both names are locked: another program may edit the file by either.
	unlock, err := lock(ctx, slices.Compact([]string{filepath.Join(dir, filepath.Base(path)), filepath.Clean(target)}))
	if err != nil {
		return err
	}
	defer unlock()
	info, err := os.Stat(target)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > kubeconfig.MaxFile {
		return fmt.Errorf("%s is not a file of at most %d bytes", path, kubeconfig.MaxFile)
	}
	old, err := os.ReadFile(target)
	if err != nil {
		return err
	}
	text, err := change(old)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if slices.Equal(text, old) {
		return nil
	}
	return atomicfile.Write(target, text, func(f *os.File) error {
		return errors.Join(own(f, info.Sys().(*syscall.Stat_t)), f.Chmod(info.Mode().Perm()))
	})
}

// lock makes the lock files of all paths, or none.
func lock(ctx context.Context, paths []string) (unlock func(), err error) {
	var made []string
	unlock = func() {
		for _, name := range made {
			os.Remove(name) // best effort
		}
	}
	for _, path := range paths {
		name := path + ".lock"
		if err := lockOne(ctx, name); err != nil {
			unlock()
			return nil, err
		}
		made = append(made, name)
	}
	return unlock, nil
}

func lockOne(ctx context.Context, name string) error {
	for {
		// Mode 0, as client-go's: no program reads it.
		f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL, 0)
		if err == nil {
			return f.Close()
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s exists", ErrLocked, name)
		case <-time.After(pollLock):
		}
	}
}

// own sets the owner of a file, which only root can change.
func own(f *os.File, owner *syscall.Stat_t) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if now := info.Sys().(*syscall.Stat_t); now.Uid == owner.Uid && now.Gid == owner.Gid {
		return nil
	}
	return f.Chown(int(owner.Uid), int(owner.Gid))
}
