// Package guard says who could have written a file, or could put another socket
// in a socket's place: nobody but root and this uid, or it is not to be believed.
//
// Start at [CheckFile], [CheckProgram] and [CheckSocketDirectory]. What root and this uid do to
// themselves it does not see.
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

// CheckFile returns an error when somebody other than root and this uid could
// have written the file at path: it says the path, the owner and the mode. Group
// write permission counts only for files of root, since on many systems each
// user's own group may write what the user writes.
func CheckFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return CheckOpen(f)
}

// CheckOpen is [CheckFile] for a file that is open already: nobody can put another
// in its place between the check and the reading.
func CheckOpen(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	forbidden := fs.FileMode(0o002)
	if ownerOf(info) == 0 {
		forbidden = 0o022
	}
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", f.Name())
	case !ours(info):
		return untrusted(f.Name(), info, "it has to be root's or this user's")
	case info.Mode().Perm()&forbidden != 0:
		return untrusted(f.Name(), info, "others can write it")
	}
	return nil
}

// CheckProgram is [CheckFile] for a file whose path decides what is used: nobody but
// root and this uid may be able to put another one in its place, by any of the
// directories and symbolic links on the way to it. The path has to be absolute.
func CheckProgram(path string) error {
	if err := CheckPath(path); err != nil {
		return err
	}
	if err := checkWay(path); err != nil {
		return err
	}
	return CheckFile(path)
}

// CheckSocketDirectory returns an error unless the directory of the socket at
// path is one that nobody else can put a socket into: not a symbolic link, owned
// by root or this uid, and closed to everybody else (mode 0700) for a user's
// agent, or to everybody else's writing for the machine's. The directories above
// it must belong to root or this uid and be writable to nobody else, unless they
// are sticky as /tmp is. The error says path, owner and mode. A path that is not
// absolute or longer than [MaxSocketPath] is refused as well.
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

// checkWay looks at every directory and symbolic link on the way to path, as the
// kernel walks it: whoever may write one of the directories, or owns one of the
// links, decides where the way leads.
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

// checkStep knows no mode of its own for symbolic links, which have none: who may
// replace a link is decided by its directory, where it leads by its owner.
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
// closed to everybody else.
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

func untrusted(path string, info fs.FileInfo, reason string) error {
	return fmt.Errorf("%s (owner uid %d, mode %04o) is not safe: %s", path, ownerOf(info), info.Mode().Perm(), reason)
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

// CheckSocketPath wants a path that fits into a socket's address. A name that
// starts with @ would be an abstract socket, which any uid may connect to: it is
// no absolute path, and so refused.
func CheckSocketPath(path string) error {
	if err := CheckPath(path); err != nil {
		return err
	}
	if len(path) > MaxSocketPath {
		return fmt.Errorf("%q has %d bytes, and the path of a socket at most %d", path, len(path), MaxSocketPath)
	}
	return nil
}

// CheckPath wants an absolute path, written in the one way that has no detours.
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
