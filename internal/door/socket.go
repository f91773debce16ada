package door

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket is one listening socket. Its methods are safe for concurrent use.
type Socket struct {
	path string
	mode fs.FileMode
	lock *os.File // held while the socket is ours; nil for a socket that systemd owns

	mu       sync.Mutex
	listener *net.UnixListener
	file     fileID
	closed   bool
}

// Activated is a socket that systemd listens on and has handed over.
func Activated(l *net.UnixListener) *Socket {
	return &Socket{path: l.Addr().String(), listener: l}
}

// Listen makes a socket of mode at path and holds path.lock while it lives, so
// that a second daemon finds out before it touches anything. There is no instant
// at which the socket is more open than mode. Listen sets the process's umask
// while it binds: call it before other goroutines make files.
func Listen(path string, mode fs.FileMode) (*Socket, error) {
	lock, err := Lock(path + ".lock")
	if err != nil {
		return nil, err
	}
	s := &Socket{path: path, mode: mode, lock: lock}
	if err := s.bind(); err != nil {
		lock.Close()
		return nil, err
	}
	return s, nil
}

// Lock takes the lock at path and writes our pid into it: the error says who has
// it. Closing the file, or the end of the process, gives it back.
func Lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		pid := make([]byte, 16)
		n, _ := f.Read(pid)
		return nil, fmt.Errorf("%s: already running, pid %s", strings.TrimSuffix(path, ".lock"), strings.TrimSpace(string(pid[:n])))
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock: %w", err)
	}
	return f, nil
}

// bind listens at the path. A socket that a dead daemon left is removed: we hold
// the lock, so nobody listens on it. Anything else at the path stays, and is an
// error.
func (s *Socket) bind() error {
	if info, err := os.Lstat(s.path); err == nil {
		if info.Mode().Type() != fs.ModeSocket {
			return fmt.Errorf("%s is in the way and is no socket", s.path)
		}
		if err := os.Remove(s.path); err != nil {
			return err
		}
	}
	old := syscall.Umask(0o777 &^ int(s.mode.Perm()))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	syscall.Umask(old)
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	file, err := identify(s.path)
	if err != nil {
		l.Close()
		return err
	}
	s.listener, s.file = l, file
	return nil
}

// fileID tells a file from one that took its place. An inode number alone does
// not: ext4 gives a freed one to the next file.
type fileID struct {
	device, inode uint64
	changed       unix.Timespec
}

func identify(path string) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fileID{}, fmt.Errorf("%s: %w", path, err)
	}
	return fileID{st.Dev, st.Ino, st.Ctim}, nil
}

// inPlace reports whether the path leads to this socket. The caller holds mu.
func (s *Socket) inPlace() bool {
	file, err := identify(s.path)
	return err == nil && file == s.file
}

// Check makes sure that the path still leads to this socket, and listens anew
// when somebody removed or replaced it. It reports whether it had to.
func (s *Socket) Check() (replaced bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil || s.closed || s.inPlace() {
		return false, nil
	}
	old := s.listener
	if err := s.bind(); err != nil {
		return true, err
	}
	old.Close()
	return true, nil
}

// Path returns where the socket is.
func (s *Socket) Path() string { return s.path }

// Accept waits for a caller. It goes on with the new listener when Check made
// one. After Close the error is [net.ErrClosed].
func (s *Socket) Accept() (*net.UnixConn, error) {
	for {
		s.mu.Lock()
		l, closed := s.listener, s.closed
		s.mu.Unlock()
		if closed {
			return nil, net.ErrClosed
		}
		conn, err := l.AcceptUnix()
		if err == nil || !errors.Is(err, net.ErrClosed) {
			return conn, err
		}
	}
}

// Close stops listening. The socket file goes when it is ours; systemd's stays,
// so that callers wait for the next daemon instead of failing.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.lock != nil {
		if s.inPlace() {
			os.Remove(s.path)
		}
		defer s.lock.Close()
	}
	return s.listener.Close()
}
