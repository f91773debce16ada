package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// create makes a file that must not exist yet. When it fails, there is no file.
func create(d disk, path string, data []byte) error {
	temp := sibling(path, incoming)
	if err := stage(d, temp, data); err != nil {
		return err
	}
	// A link, because a rename would silently replace a file of another program.
	if err := d.link(temp, path); err != nil {
		d.remove(temp)
		return fmt.Errorf("link into place: %w", err)
	}
	err := d.remove(temp)
	if err == nil {
		err = confirm(d, path, data)
	}
	if err == nil {
		return nil
	}
	d.remove(temp)
	return errors.Join(err, undo(d, path, d.remove(path)))
}

// replace gives an existing file new content. When it fails, the file has its
// previous content.
func replace(d disk, path string, data []byte) error {
	temp, old := sibling(path, incoming), sibling(path, outgoing)
	if err := stage(d, temp, data); err != nil {
		return err
	}
	err := clear(d, old)
	if err == nil {
		err = d.link(path, old)
	}
	if err != nil {
		d.remove(temp)
		return fmt.Errorf("keep the previous file: %w", err)
	}
	if err := d.rename(temp, path); err != nil {
		d.remove(temp)
		d.remove(old)
		return fmt.Errorf("rename into place: %w", err)
	}
	if err := confirm(d, path, data); err != nil {
		return errors.Join(err, undo(d, path, d.rename(old, path)))
	}
	d.remove(old) // when this fails, loading cleans up
	return nil
}

// discard removes a file. When it fails, the file exists, unless it could not be
// restored.
func discard(d disk, path string) error {
	data, err := read(d, path, MaxRecord)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	for _, left := range []string{sibling(path, incoming), sibling(path, outgoing)} {
		if err := clear(d, left); err != nil {
			return fmt.Errorf("remove the leftover of an interrupted write: %w", err)
		}
	}
	if err := d.remove(path); err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	if err := syncDirectory(d, filepath.Dir(path)); err != nil {
		return errors.Join(err, undo(d, path, create(d, path, data)))
	}
	return nil
}

// stage writes a temporary file and syncs it to the device.
func stage(d disk, temp string, data []byte) error {
	if err := clear(d, temp); err != nil {
		return fmt.Errorf("remove the leftover of an interrupted write: %w", err)
	}
	f, err := d.open(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := fill(f, data); err != nil {
		d.remove(temp)
		return err
	}
	return nil
}

func fill(f handle, data []byte) error {
	if _, err := f.Write(data); err != nil {
		f.Close()
		return fmt.Errorf("write: %w", err)
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return fmt.Errorf("fsync: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// confirm makes a file's name durable and reads the file back.
func confirm(d disk, path string, data []byte) error {
	if err := syncDirectory(d, filepath.Dir(path)); err != nil {
		return err
	}
	got, err := read(d, path, len(data))
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if !bytes.Equal(got, data) {
		return errors.New("read back: not what was written")
	}
	return nil
}

// undo completes an attempt to undo a change, whose outcome is err.
func undo(d disk, path string, err error) error {
	if err != nil {
		return fmt.Errorf("undo the change: %w", err)
	}
	syncDirectory(d, filepath.Dir(path)) // the first error is the one to report
	return nil
}

// clear removes a file that may be missing.
func clear(d disk, path string) error {
	if err := d.remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
