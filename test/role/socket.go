package role

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Dir returns a directory that every user may use. Its name is short: the path of
// a socket has at most 107 bytes.
func Dir(tb testing.TB) string {
	tb.Helper()
	directory, err := os.MkdirTemp("", "hf")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(directory) })
	if err := os.Chmod(directory, 0o777); err != nil {
		tb.Fatal(err)
	}
	return directory
}

// Listen makes a socket that every user may connect to, and returns its path too.
func Listen(tb testing.TB) (*net.UnixListener, string) {
	tb.Helper()
	path := filepath.Join(Dir(tb), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	if err := os.Chmod(path, 0o777); err != nil {
		tb.Fatal(err)
	}
	return l, path
}

// Accept accepts one connection.
func Accept(tb testing.TB, l *net.UnixListener) *net.UnixConn {
	tb.Helper()
	err := l.SetDeadline(time.Now().Add(timeout))
	conn, failed := l.AcceptUnix()
	if err := errors.Join(err, failed); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Until waits until a condition holds.
func Until(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(timeout); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatal("waited for: " + what)
		}
	}
}

// NeedRoot fails a test that plays users, which root alone can.
func NeedRoot(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Fatal("this test becomes other users and has to run as root")
	}
}
