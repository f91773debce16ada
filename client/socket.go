package client

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

	"holdfast/client/varlink"
)

// Sockets returns the paths at which an agent is looked for, in order: the one
// in $HOLDFAST_SOCKET and no other when it is set; else agent.sock in
// $XDG_RUNTIME_DIR/holdfast, or in /run/user/UID/holdfast where that is not
// set, then in /run/holdfast.
func Sockets() []string {
	if path := os.Getenv("HOLDFAST_SOCKET"); path != "" {
		return []string{path}
	}
	runtime := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(runtime) { // unset, or not to be used (XDG Base Directory Specification)
		runtime = filepath.Join("/run/user", strconv.Itoa(os.Getuid()))
	}
	return []string{
		filepath.Join(runtime, "holdfast", "agent.sock"),
		"/run/holdfast/agent.sock",
	}
}

// choose returns the first path that exists, or the first one, so that an error
// names the place where a user's agent should be.
func choose(paths []string) string {
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return paths[0]
}

// connect checks the socket's directory, connects, and checks who listens.
func connect(ctx context.Context, path string) (*varlink.Conn, error) {
	if err := checkDirectory(path); err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, dialError(path, err)
	}
	if err := checkListener(conn.(*net.UnixConn), path); err != nil {
		conn.Close()
		return nil, err
	}
	return varlink.NewConn(conn), nil
}

// trusted reports whether uid may stand between this process and its agent: this
// user, who could do as much in other ways, and root.
func trusted(uid uint32) bool { return uid == 0 || int(uid) == os.Getuid() }

// checkDirectory fails when anybody else could put a socket of their own at
// path, and so be sent a PIN or give out a false key.
func checkDirectory(path string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	if err != nil {
		return dialError(path, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return &UnreachableError{Socket: path, Reason: fmt.Sprintf("the owner of %s cannot be read", dir)}
	}
	if !trusted(stat.Uid) {
		return &UnreachableError{
			Socket: path,
			Reason: fmt.Sprintf("%s belongs to uid %d, who could answer in the agent's place", dir, stat.Uid),
			Hint:   "name a socket in a directory of your own or of root's, with --socket or HOLDFAST_SOCKET",
		}
	}
	if info.Mode().Perm()&0o022 != 0 {
		return &UnreachableError{
			Socket: path,
			Reason: fmt.Sprintf("%s can be written by others (mode %04o), who could answer in the agent's place", dir, info.Mode().Perm()),
			Hint:   "chmod go-w " + dir,
		}
	}
	return nil
}

// checkListener looks at who really listens: a directory further up could have
// been replaced between the check and the connection. Under socket activation
// that is systemd: root, or this user.
func checkListener(conn *net.UnixConn, path string) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return dialError(path, err)
	}
	var cred *syscall.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return dialError(path, err)
	}
	if !trusted(cred.Uid) {
		return &UnreachableError{
			Socket: path,
			Reason: fmt.Sprintf("uid %d listens at %s, which is neither you nor root", cred.Uid, path),
			Hint:   "find out who runs there before you use that socket",
		}
	}
	return nil
}

// dialError explains why nothing could be reached at path.
func dialError(path string, err error) error {
	e := &UnreachableError{Socket: path, Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		e.Reason = "no agent listens at " + path
		e.Hint = "start one (systemctl --user start holdfast-agent.socket), or name another socket with --socket or HOLDFAST_SOCKET; holdfast doctor looks closer"
	case errors.Is(err, fs.ErrPermission):
		e.Reason = "you may not connect to " + path
		e.Hint = "use the agent of your own user, or have an administrator let you in; holdfast doctor looks closer"
	default:
		e.Reason = fmt.Sprintf("connecting to %s: %v", path, err)
		e.Hint = "holdfast doctor looks closer"
	}
	return e
}
