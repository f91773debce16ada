package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"holdfast/internal/guard"
)

// disk holds the system calls that a store makes on its files. Tests inject faults
// through it.
type disk interface {
	open(path string, flag int) (handle, error)
	link(from, to string) error
	rename(from, to string) error
	remove(path string) error
	mkdir(path string) error
}

// handle is an open file or directory.
type handle interface {
	io.ReadWriteCloser
	Sync() error
	Stat() (fs.FileInfo, error)
}

// system is the real disk.
type system struct{}

func (system) open(path string, flag int) (handle, error) {
	// O_NONBLOCK: opening a FIFO in the place of a file must not wait.
	return os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0o600)
}
func (system) link(from, to string) error   { return os.Link(from, to) }
func (system) rename(from, to string) error { return os.Rename(from, to) }
func (system) remove(path string) error     { return os.Remove(path) }
func (system) mkdir(path string) error      { return os.Mkdir(path, 0o700) }

// checkDirectory rejects a directory that is not ours alone.
func checkDirectory(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return errors.New("not a directory")
	}
	return guard.CheckMode(info, 0o700)
}

// read returns the content of a file that passes guard.CheckOwn and has at most max
// bytes.
func read(d disk, path string, max int) ([]byte, error) {
	f, err := d.open(path, os.O_RDONLY)
	if errors.Is(err, syscall.ELOOP) {
		return nil, errors.New("a symbolic link")
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := guard.CheckOwn(info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(max)+1))
	if err != nil {
		return nil, err
	}
	if len(data) > max {
		return nil, fmt.Errorf("larger than %d bytes", max)
	}
	return data, nil
}

// syncDirectory makes the names in a directory survive a power cut.
func syncDirectory(d disk, path string) error {
	f, err := d.open(path, os.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("open directory: %w", err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("fsync %s: %w", path, err)
	}
	return nil
}

// exists reports whether anything has this name.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// sibling returns the name of one of our temporary files: it starts with a dot,
// as the name of no key does.
func sibling(path, suffix string) string {
	dir, base := filepath.Split(path)
	return dir + "." + base + suffix
}

// The suffixes of the files that an interrupted write leaves behind.
const (
	incoming = ".new" // not yet in place
	outgoing = ".old" // no longer in place, kept until its successor has been read back
)
