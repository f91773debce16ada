package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"holdfast/client"
	"holdfast/client/clienttest"
	"holdfast/internal/fault"
)

func TestSockets(t *testing.T) {
	tests := []struct {
		name, own, runtime string
		want               []string
	}{
		{"HOLDFAST_SOCKET", "/x/y.sock", "/run/user/7", []string{"/x/y.sock"}},
		{"XDG_RUNTIME_DIR", "", "/run/user/7", []string{"/run/user/7/holdfast/agent.sock", "/run/holdfast/agent.sock"}},
		{"neither", "", "", []string{"/run/user/UID/holdfast/agent.sock", "/run/holdfast/agent.sock"}},
		{"not absolute", "", "tmp", []string{"/run/user/UID/holdfast/agent.sock", "/run/holdfast/agent.sock"}},
	}
	for _, test := range tests {
		t.Setenv("HOLDFAST_SOCKET", test.own)
		t.Setenv("XDG_RUNTIME_DIR", test.runtime)
		for i, path := range test.want {
			test.want[i] = strings.Replace(path, "UID", strconv.Itoa(os.Getuid()), 1)
		}
		if got := client.Sockets(); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestDialDefault(t *testing.T) {
	agent := clienttest.Start(t)
	runtime := t.TempDir()
	if err := os.Mkdir(filepath.Join(runtime, "holdfast"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(agent.Socket, filepath.Join(runtime, "holdfast", "agent.sock")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOLDFAST_SOCKET", "")
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	c, err := client.Dial(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if want := filepath.Join(runtime, "holdfast", "agent.sock"); c.Socket() != want {
		t.Errorf("got %s, want %s", c.Socket(), want)
	}
}

// Each case starts from a socket that works and changes one thing.
func TestUnsafeSocket(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, socket string)
		want   string // in the error; empty when the dial works
	}{
		{"nothing", func(*testing.T, string) {}, ""},
		{"directory of another user", func(t *testing.T, s string) { check(t, os.Chown(filepath.Dir(s), 4711, -1)) }, "uid 4711"},
		{"directory that others can write", func(t *testing.T, s string) { check(t, os.Chmod(filepath.Dir(s), 0o777)) }, "mode 0777"},
		{"sticky directory", func(t *testing.T, s string) { check(t, os.Chmod(filepath.Dir(s), 0o777|os.ModeSticky)) }, "mode 0777"},
		{"directory that the group can write", func(t *testing.T, s string) { check(t, os.Chmod(filepath.Dir(s), 0o770)) }, "mode 0770"},
		{"no socket", func(t *testing.T, s string) { check(t, os.Remove(s)) }, "no agent listens"},
		{"a file", func(t *testing.T, s string) { check(t, os.Remove(s)); check(t, os.WriteFile(s, nil, 0o600)) }, "is not a socket"},
	}
	if os.Getuid() != 0 {
		t.Fatal("these cases give directories away: run as root")
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			agent := clienttest.Start(t)
			test.change(t, agent.Socket)
			c, err := client.Dial(context.Background(), &client.Options{Socket: agent.Socket})
			if err == nil {
				c.Close()
			}
			if test.want == "" {
				check(t, err)
				return
			}
			var unreachable *client.UnreachableError
			if !errors.As(err, &unreachable) || !strings.Contains(unreachable.Reason, test.want) || unreachable.Hint == "" {
				t.Errorf("got %v, want an UnreachableError with a hint that says %q", err, test.want)
			}
			if n := len(agent.Calls("")); n != 0 {
				t.Errorf("%d calls were made", n)
			}
		})
	}
}

// The hint for a directory such as /tmp changes no rights: root would follow it.
func TestUnsafeSocketHint(t *testing.T) {
	_, err := client.Dial(t.Context(), &client.Options{Socket: "/tmp/agent.sock"})
	var unreachable *client.UnreachableError
	if !errors.As(err, &unreachable) || !strings.Contains(unreachable.Hint, "a directory of its own") || strings.Contains(unreachable.Hint, "/tmp") {
		t.Errorf("got %#v", unreachable)
	}
}

func TestLongPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	_, err := client.Dial(t.Context(), &client.Options{Socket: path})
	var unreachable *client.UnreachableError
	if !errors.As(err, &unreachable) || !strings.Contains(unreachable.Reason, "too long") || unreachable.Hint == "" {
		t.Errorf("got %v", err)
	}
}

// A program that speaks another protocol is not taken for an agent.
func TestNotAnAgent(t *testing.T) {
	for name, answer := range map[string]string{
		"HTTP":            "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
		"another service": `{"error":"org.varlink.service.InterfaceNotFound","parameters":{"interface":"io.holdfast.Agent"}}` + "\x00",
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "holdfast")
			check(t, err)
			defer os.RemoveAll(dir)
			path := filepath.Join(dir, "agent.sock")
			l, err := net.Listen("unix", path)
			check(t, err)
			defer l.Close()
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					conn.Read(make([]byte, 1024))
					io.WriteString(conn, answer)
					conn.Close()
				}
			}()
			c := client.New(&client.Options{Socket: path})
			defer c.Close()
			_, err = c.Status(t.Context())
			if e, ok := fault.AsError(err); !ok || !strings.Contains(e.Message, "is not a holdfast agent") || e.Hint == "" {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestMissingDirectory(t *testing.T) {
	_, err := client.Dial(context.Background(), &client.Options{Socket: filepath.Join(t.TempDir(), "a", "agent.sock")})
	var unreachable *client.UnreachableError
	if !errors.As(err, &unreachable) || !strings.Contains(unreachable.Reason, "no agent listens") {
		t.Errorf("got %v, want an UnreachableError", err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A listener of another user is not spoken to, wherever its socket is.
func TestForeignListener(t *testing.T) {
	dir, err := os.MkdirTemp("", "holdfast")
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "agent.sock")
	for _, uid := range []int{0, 4711} {
		fd := listenAs(t, path, uid)
		c, err := client.Dial(context.Background(), &client.Options{Socket: path})
		if err == nil {
			c.Close()
		}
		var unreachable *client.UnreachableError
		switch refused := errors.As(err, &unreachable) && strings.Contains(unreachable.Reason, "uid 4711 listens"); {
		case uid == 0 && err != nil:
			t.Errorf("root listens: %v", err)
		case uid != 0 && !refused:
			t.Errorf("uid %d listens: got %v, want a refusal", uid, err)
		}
		syscall.Close(fd)
		check(t, os.Remove(path))
	}
}

// listenAs listens at path as another user: the kernel notes the identity of the
// thread that calls listen(2).
func listenAs(t *testing.T, path string, uid int) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	check(t, err)
	check(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
			done <- e
			return
		}
		done <- syscall.Listen(fd, 1)
	}()
	check(t, <-done)
	return fd
}
