// Package guard checks that no other user can write a file or replace a socket: only
// root and this process's uid may be able to. It also hardens the process itself.
//
// Start at [CheckFile], [CheckProgram], [CheckSocketDirectory] and [HardenProcess].
// The package does not protect against root or other processes of this uid.
package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// CheckFile returns an error when a user other than root and this uid could have written
// the file at path. The error has the path, the owner and the mode. Group
// write permission counts only for files of root: on many systems each user has a
// group of their own, which may write the user's files.
func CheckFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return CheckOpen(f)
}

// CheckOpen is [CheckFile] for an open file: no process can replace the file between
// the check and the reading.
func CheckOpen(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", f.Name())
	}
	return checkWriters(f.Name(), info)
}

// CheckDirectory is [CheckFile] for a directory.
func CheckDirectory(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", path)
	}
	return checkWriters(path, info)
}

func checkWriters(path string, info fs.FileInfo) error {
	forbidden := fs.FileMode(0o002)
	if ownerOf(info) == 0 {
		forbidden = 0o022
	}
	switch {
	case !ours(info):
		return untrusted(path, info, "it has to be root's or this user's")
	case info.Mode().Perm()&forbidden != 0:
		return untrusted(path, info, "others can write it")
	}
	return nil
}

// CheckProgram is [CheckFile] for a file that is used by its path: no other user than
// root and this uid may be able to replace the file, or any of the directories and
// symbolic links on the way to it. The path has to be absolute.
func CheckProgram(path string) error {
	if err := CheckPath(path); err != nil {
		return err
	}
	if err := checkWay(path); err != nil {
		return err
	}
	return CheckFile(path)
}

// CheckSocketDirectory returns an error when another user could put a socket into
// the directory of the socket at path. The directory must not be a symbolic link and
// must belong to root or this uid. For a user's daemon it must be closed to other
// users (mode 0700); for the machine's they must not be able to write it. The
// directories above it must belong to root or this uid, and other users must not be
// able to write them, unless they are sticky as /tmp is. The error has the path, the
// owner and the mode. A path that is not absolute or longer than [MaxSocketPath] is
// an error too.
func CheckSocketDirectory(path string, system bool) error {
	if err := CheckSocketPath(path); err != nil {
		return err
	}
	directory := filepath.Dir(path)
	info, err := os.Lstat(directory)
	if err != nil {
		return err
	}
	forbidden := fs.FileMode(0o077)
	if system {
		forbidden = 0o022
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return untrusted(directory, info, "it is a symbolic link")
	case !info.IsDir():
		return untrusted(directory, info, "it is not a directory")
	case !ours(info):
		return untrusted(directory, info, "it has to be root's or this user's")
	case info.Mode().Perm()&forbidden != 0:
		return untrusted(directory, info, fmt.Sprintf("others may have none of the permissions %04o", forbidden))
	}
	return checkWay(filepath.Dir(directory))
}

// maxLinks is how many symbolic links the kernel follows in one path
// (path_resolution(7)).
const maxLinks = 40

// checkWay checks every directory and symbolic link on the way to path, as the
// kernel walks it: a user who can write one of the directories, or owns one of the
// links, decides where the path leads.
func checkWay(path string) error {
	at, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." { // only from a link: the way so far has none left
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if err != nil {
			return err
		}
		if err := checkStep(next, info); err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		target, err := os.Readlink(next)
		if err != nil {
			return err
		}
		if links++; links > maxLinks {
			return untrusted(next, info, "too many symbolic links lead there")
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return nil
}

// checkStep checks one directory or symbolic link. A link has no mode: its directory
// decides who can replace it, its owner where it leads.
func checkStep(path string, info fs.FileInfo) error {
	mode := info.Mode()
	switch {
	case !ours(info):
		return untrusted(path, info, "it has to be root's or this user's")
	case mode.IsDir() && mode.Perm()&0o022 != 0 && mode&fs.ModeSticky == 0:
		return untrusted(path, info, "others can write it, and it is not sticky")
	}
	return nil
}

// CheckPrivate returns an error unless path is a directory of this uid that is
// closed to other users.
func CheckPrivate(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() || ownerOf(info) != uint32(os.Geteuid()) || info.Mode().Perm()&0o077 != 0 {
		return untrusted(path, info, "it has to be this user's own, with mode 0700")
	}
	return nil
}

// CheckOwn returns an error unless a file is a regular file of this uid that no other
// user can read, and that has no second name: another program could change the file
// through that later.
func CheckOwn(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("not a regular file (%s)", info.Mode().Type())
	}
	if err := CheckMode(info, 0o600); err != nil {
		return err
	}
	if n := info.Sys().(*syscall.Stat_t).Nlink; n != 1 {
		return fmt.Errorf("%d hard links, want 1", n)
	}
	return nil
}

// CheckMode returns an error unless this uid owns a file or directory, and its mode is
// exactly this.
func CheckMode(info fs.FileInfo, mode fs.FileMode) error {
	if uid := ownerOf(info); uid != uint32(os.Geteuid()) {
		return fmt.Errorf("owned by uid %d, want uid %d", uid, os.Geteuid())
	}
	if got := info.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky); got != mode {
		return fmt.Errorf("mode %#o, want %#o", got, mode)
	}
	return nil
}

// An UnsafeError says that another user could have written a file or placed a socket.
type UnsafeError struct{ fact, hint string }

// Error returns the path, the owner, the mode and the reason.
func (e *UnsafeError) Error() string { return e.fact }

// Advice returns the next step.
func (e *UnsafeError) Advice() string { return e.hint }

func untrusted(path string, info fs.FileInfo, reason string) error {
	what := "file"
	if info.IsDir() {
		what = "directory"
	}
	return &UnsafeError{
		fact: fmt.Sprintf("%s (owner uid %d, mode %04o) is not safe: %s", path, ownerOf(info), info.Mode().Perm(), reason),
		hint: "use a " + what + " that belongs to root or this user, in a place where no other user can write",
	}
}

func ours(info fs.FileInfo) bool {
	uid := ownerOf(info)
	return uid == 0 || uid == uint32(os.Geteuid())
}

// ownerOf returns the owner's uid. Stat of the os package always gives a Stat_t
// on Linux.
func ownerOf(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// MaxSocketPath is the length of the longest path of a Unix socket, in bytes
// (unix(7): sun_path has 108, the last of them zero).
const MaxSocketPath = 107

// CheckSocketPath is [CheckPath] for a socket: the path has to fit into an address. A
// name that starts with @ would be an abstract socket, which any uid may connect to.
// It is not an absolute path, and therefore an error.
func CheckSocketPath(path string) error {
	if err := CheckPath(path); err != nil {
		return err
	}
	if len(path) > MaxSocketPath {
		return fmt.Errorf("%q has %d bytes, and the path of a socket at most %d", path, len(path), MaxSocketPath)
	}
	return nil
}

// CheckPath returns an error unless path is absolute and clean, see
// [filepath.Clean].
func CheckPath(path string) error {
	switch {
	case path == "":
		return errors.New("the path is empty")
	case !filepath.IsAbs(path):
		return fmt.Errorf("%.80q is not an absolute path", path)
	case strings.ContainsRune(path, 0):
		return fmt.Errorf("%.80q has a zero byte in it", path)
	case filepath.Clean(path) != path:
		return fmt.Errorf("%.80q would be written %.80q", path, filepath.Clean(path))
	}
	return nil
}
