package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"holdfast/internal/guard"
)

// systemDirectory has the files of the machine's daemons.
const systemDirectory = "/etc/holdfast"

// An Environment looks up a variable: [os.Getenv], or a test's own.
type Environment func(name string) string

// A Default returns the value of a setting that nothing else gives. An empty one
// leaves the setting without a value.
type Default func(Environment) (string, error)

// Always is a value that depends on nothing.
func Always(value string) Default {
	return func(Environment) (string, error) { return value, nil }
}

// InState is a path in the user's directory for state, ${XDG_STATE_HOME:-~/.local/state}.
func InState(path string) Default {
	return func(e Environment) (string, error) { return e.xdg("XDG_STATE_HOME", ".local/state", path) }
}

// InRuntime is a path in the user's directory for sockets, $XDG_RUNTIME_DIR. Without
// that variable it is in /run/user/UID, if that is the user's and closed to others.
// No other directory takes its place: where others can write, a socket could be
// theirs. (pam_systemd sets the variable and makes the directory in every session.)
func InRuntime(path string) Default {
	return func(e Environment) (string, error) {
		directory := e("XDG_RUNTIME_DIR")
		if !filepath.IsAbs(directory) {
			directory = "/run/user/" + strconv.Itoa(os.Geteuid())
			if err := guard.CheckPrivate(directory); err != nil {
				return "", fmt.Errorf("XDG_RUNTIME_DIR is not set, and %w", err)
			}
		}
		return filepath.Join(directory, path), nil
	}
}

// SystemFile is the file of that name in /etc/holdfast. It is no value when the
// file is certainly not there.
func SystemFile(name string) Default {
	return func(Environment) (string, error) {
		path := filepath.Join(systemDirectory, name)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		return path, nil
	}
}

// xdg returns a path in a base directory of the XDG Base Directory Specification,
// which says to ignore relative paths in the variables.
func (e Environment) xdg(variable, belowHome, path string) (string, error) {
	if directory := e(variable); filepath.IsAbs(directory) {
		return filepath.Join(directory, path), nil
	}
	home := e("HOME")
	if !filepath.IsAbs(home) {
		return "", fmt.Errorf("neither %s nor HOME is an absolute path", variable)
	}
	return filepath.Join(home, belowHome, path), nil
}
