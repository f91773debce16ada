// Package dial finds the Unix socket of a holdfast service and connects to it only
// where no other user than this one and root can answer.
//
// Start at [Service.Paths] and [Service.Connect].
//
// It trusts root and every program of this user: those have the same power in other
// ways.
package dial

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"holdfast/internal/varlink"
)

// A Service is a program of holdfast that listens on a Unix socket.
type Service struct {
	Name     string // agent or broker: the socket is NAME.sock, the unit holdfast-NAME
	Variable string // the environment variable that names another socket
}

// Agent is the service that holds the keys.
func Agent() Service { return Service{Name: "agent", Variable: "HOLDFAST_SOCKET"} }

// Broker is the service that speaks to clusters.
func Broker() Service { return Service{Name: "broker", Variable: "HOLDFAST_BROKER_SOCKET"} }

// Paths returns the places to look for the socket, in order: only the path in its
// variable when that is set; else its socket in
// $XDG_RUNTIME_DIR/holdfast, or in /run/user/UID/holdfast where that is not
// set, then in /run/holdfast.
func (s Service) Paths() []string {
	if path := os.Getenv(s.Variable); path != "" {
		return []string{path}
	}
	return s.places()
}

// Default returns the place of the user's own service.
func (s Service) Default() string { return s.places()[0] }

// places is Paths without the variable.
func (s Service) places() []string {
	runtime := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(runtime) { // unset, or relative, which the XDG Base Directory Specification forbids
		runtime = filepath.Join("/run/user", strconv.Itoa(os.Getuid()))
	}
	return []string{
		filepath.Join(runtime, "holdfast", s.Name+".sock"),
		"/run/holdfast/" + s.Name + ".sock",
	}
}

// Path returns the first of Paths that exists, or else the first, so that an error
// names the place of the user's own service.
func (s Service) Path() string {
	paths := s.Paths()
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return paths[0]
}

// Connect checks the directory of the socket at path, connects, and checks the user
// that listens. The error is an [*UnreachableError], or ctx's own.
func (s Service) Connect(ctx context.Context, path string) (*varlink.Conn, error) {
	if err := s.checkDirectory(path); err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, s.dialError(path, err)
	}
	if err := s.checkListener(conn.(*net.UnixConn), path); err != nil {
		conn.Close()
		return nil, err
	}
	return varlink.NewConn(conn), nil
}

// An UnreachableError says that the service cannot be reached: no program listens,
// the socket is not safe to use, or the connection was lost.
type UnreachableError struct {
	Socket string // the path that was tried
	Reason string // one fact, lower case, no full stop
	Hint   string // the next step; may be empty
	Fix    string // Hint without the advice to run holdfast doctor; set where Hint has it
	Err    error  // the cause; may be nil
}

// Error returns the reason.
func (e *UnreachableError) Error() string { return e.Reason }

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// trusted reports whether uid may own a service's socket: this user and root, which
// have the same power in other ways.
func trusted(uid uint32) bool { return uid == 0 || int(uid) == os.Getuid() }

// checkDirectory fails when another user could put a socket at path, and so receive a
// PIN or present a false key.
func (s Service) checkDirectory(path string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	if err != nil {
		return s.dialError(path, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return &UnreachableError{Socket: path, Reason: fmt.Sprintf("the owner of %s cannot be read", dir)}
	}
	if !trusted(stat.Uid) {
		return &UnreachableError{
			Socket: path,
			Reason: fmt.Sprintf("%s belongs to uid %d, which could answer in the %s's place", dir, stat.Uid, s.Name),
			Hint:   "name a socket in a directory of your own or of root's with " + s.Variable,
		}
	}
	if info.Mode().Perm()&0o022 != 0 {
		return &UnreachableError{
			Socket: path,
			Reason: fmt.Sprintf("%s can be written by other users (mode %04o), which could answer in the %s's place", dir, info.Mode().Perm(), s.Name),
			Hint:   "put the socket into a directory of its own that only you can write, and name it with " + s.Variable,
		}
	}
	return nil
}

// checkListener checks the user that listens: a parent directory could have been
// replaced between the check and the connection. With socket activation that user is
// systemd's: root, or this user.
func (s Service) checkListener(conn *net.UnixConn, path string) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return s.dialError(path, err)
	}
	var cred *syscall.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return s.dialError(path, err)
	}
	if !trusted(cred.Uid) {
		return &UnreachableError{
			Socket: path,
			Reason: fmt.Sprintf("uid %d listens at %s, which is neither you nor root", cred.Uid, path),
			Hint:   "find out which program listens there before you use that socket",
		}
	}
	return nil
}

// maxPath is the length of the longest path of a Unix socket, in bytes (unix(7)).
const maxPath = 107

// dialError returns the error for a connection to path that failed.
func (s Service) dialError(path string, err error) error {
	e := &UnreachableError{Socket: path, Err: err}
	info, statErr := os.Stat(path)
	switch {
	case len(path) > maxPath:
		e.Reason = fmt.Sprintf("the path of the socket is too long: %s has %d bytes, and the path of a socket at most %d", path, len(path), maxPath)
		e.Fix = fmt.Sprintf("put the socket into a directory with a shorter path, and name it with %s", s.Variable)
	case statErr == nil && info.Mode()&fs.ModeSocket == 0:
		e.Reason = path + " is not a socket"
		e.Fix = fmt.Sprintf("name the socket of the %s with %s", s.Name, s.Variable)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		e.Reason = fmt.Sprintf("no %s listens at %s", s.Name, path)
		e.Fix = fmt.Sprintf("start one (systemctl --user start holdfast-%s.socket), or name another socket with %s", s.Name, s.Variable)
		if path == os.Getenv(s.Variable) {
			e.Fix = fmt.Sprintf("start one there, or unset %s to use the one at %s", s.Variable, s.Default())
		}
	case errors.Is(err, fs.ErrPermission):
		e.Reason = "you may not connect to " + path
		e.Fix = "use the " + s.Name + " of your own user, or have an administrator let you in"
	default:
		e.Reason = fmt.Sprintf("connecting to %s: %v", path, err)
		e.Fix = "look at the log of the " + s.Name
	}
	e.Hint = e.Fix + "; holdfast doctor looks closer"
	return e
}
