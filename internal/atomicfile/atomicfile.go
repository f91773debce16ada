// Package atomicfile replaces files whole or not at all: after a crash a name has
// either its old content or all of the new one. Start at [Write].
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write replaces the file at path, or makes it. Only this user can read it (mode 0600)
// unless prepare, which may be nil, changes that before the file gets its name. A crash
// can leave a file beside it whose name starts with a dot and ends in .new.
func Write(path string, data []byte, prepare func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.new")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && prepare != nil {
		err = prepare(f)
	}
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name()) // best effort
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

// Remove removes a file.
func Remove(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

// syncDirectory makes the names in a directory durable.
func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
