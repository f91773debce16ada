package door

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"

	"holdfast/internal/lockfile"

	"golang.org/x/sys/unix"
)

// Socket is one listening socket. Its methods are safe for concurrent use.
type Socket struct {
	path string
	mode fs.FileMode
	lock *os.File // held until Close; nil for a socket that systemd owns

	mu       sync.Mutex
	listener *net.UnixListener
	file     fileID
	closed   bool
}

// Activated returns a socket that systemd listens on and has passed to the daemon.
func Activated(l *net.UnixListener) *Socket {
	return &Socket{path: l.Addr().String(), listener: l}
}

// Listen makes a socket of mode at path. It holds path.lock until the socket is
// closed, so that a second daemon fails before it touches anything. At no instant is
// the socket more open than mode. Listen sets the process's umask while it binds:
// call it before other goroutines make files.
func Listen(path string, mode fs.FileMode) (*Socket, error) {
	lock, err := lockfile.Take(path + ".lock")
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

// bind listens at the path. It removes a socket that a dead daemon left: this
// process holds the lock, so no other daemon listens there. Anything else at the
// path stays, and is an error.
func (s *Socket) bind() error {
	if info, err := os.Lstat(s.path); err == nil {
		if info.Mode().Type() != fs.ModeSocket {
			return fmt.Errorf("%s is in the way and is not a socket", s.path)
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

// fileID tells a file from another one at the same path. An inode number alone does
// not: ext4 reuses a freed number for the next file.
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

// Check makes sure that the path still leads to this socket. When it was removed
// or replaced, Check listens again and reports replaced.
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

// Path returns the path of the socket.
func (s *Socket) Path() string { return s.path }

// Accept waits for a caller. It continues with the new listener when [Socket.Check]
// makes one. After [Socket.Close] the error is [net.ErrClosed].
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

// Close stops listening. It removes the file of a socket that [Listen] made. The file
// of systemd's socket stays, so that callers wait for the next daemon instead of
// failing.
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
