package notify

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test program is also the daemon that gets the sockets: it is started again
// with the wanted ones in this variable, as NAME=PATH=MODE separated by spaces.
// The path "loopback" stands for an optional loopback socket.
const childVariable = "HOLDFAST_TEST_WANTED"

func TestMain(m *testing.M) {
	if wanted, ok := os.LookupEnv(childVariable); ok {
		os.Exit(child(strings.Fields(wanted)))
	}
	os.Exit(m.Run())
}

// child prints what Listeners returned. It answers the first connection of each
// listener with the listener's name.
func child(specs []string) int {
	var wanted []Socket
	for _, spec := range specs {
		parts := strings.Split(spec, "=")
		mode, _ := strconv.ParseUint(parts[2], 8, 32)
		s := Socket{Name: parts[0], Path: parts[1], Mode: fs.FileMode(mode)}
		if s.Path == "loopback" {
			s = Socket{Name: s.Name, Loopback: true, Optional: true}
			s.Keeps = s.Name == "kept"
		}
		wanted = append(wanted, s)
	}
	listeners, err := Listeners(wanted...)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Printf("%d sockets, LISTEN_FDS %q\n", len(listeners), os.Getenv("LISTEN_FDS"))
	if kept := Kept(listeners); len(kept) > 0 {
		fmt.Println(kept[0].Addr())
		return 0
	}
	for _, want := range wanted {
		l := listeners[want.Name]
		if l == nil {
			continue
		}
		conn, err := l.Accept()
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Fprintln(conn, want.Name)
		conn.Close()
		l.Close()
	}
	return 0
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// withSockets runs the child with descriptors from 3 on. A shell stands in for
// systemd: it knows its pid before it becomes the child.
func withSockets(t *testing.T, wanted, environment string, files ...*os.File) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", "LISTEN_PID=$$ "+environment+` exec "$0"`, self(t))
	cmd.Env = append(os.Environ(), childVariable+"="+wanted)
	cmd.ExtraFiles = files
	out, _ := cmd.Output()
	return strings.TrimSuffix(string(out), "\n")
}

// unixSocket returns a socket of the given type bound to name, listening if it
// can, with the permissions of mode.
func unixSocket(t *testing.T, kind int, name string, mode fs.FileMode) *os.File {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, kind, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { f.Close() })
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: name}); err != nil {
		t.Fatal(err)
	}
	if kind == syscall.SOCK_STREAM {
		if err := syscall.Listen(fd, 1); err != nil {
			t.Fatal(err)
		}
	}
	if filepath.IsAbs(name) {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func tcpSocket(t *testing.T) *os.File {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestListenersRefuse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.sock")
	good := unixSocket(t, syscall.SOCK_STREAM, path, 0o600)
	unbound, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	silent := os.NewFile(uintptr(unbound), "unbound")
	defer silent.Close()
	elsewhere := unixSocket(t, syscall.SOCK_STREAM, filepath.Join(dir, "other.sock"), 0o600)
	datagram := unixSocket(t, syscall.SOCK_DGRAM, filepath.Join(dir, "datagram.sock"), 0o600)
	wide := unixSocket(t, syscall.SOCK_STREAM, filepath.Join(dir, "wide.sock"), 0o666)
	group := unixSocket(t, syscall.SOCK_STREAM, filepath.Join(dir, "group.sock"), 0o620)
	abstract := unixSocket(t, syscall.SOCK_STREAM, "@holdfast-test-"+filepath.Base(dir)+strconv.Itoa(os.Getpid()), 0)
	replaced := unixSocket(t, syscall.SOCK_STREAM, filepath.Join(dir, "replaced.sock"), 0o600)
	os.Remove(replaced.Name())
	if err := os.WriteFile(replaced.Name(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	plain, err := os.Open(replaced.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()

	agent := "agent=" + path + "=600"
	one := "LISTEN_FDS=1 LISTEN_FDNAMES=agent"
	third := "socket activation: file descriptor 3 (agent): "
	tests := []struct {
		name, wanted, environment string
		files                     []*os.File
		want                      string
	}{
		{"none", agent, "LISTEN_FDS=0", nil, `socket activation: LISTEN_FDS is "0", want 1 (agent)`},
		{"no number", agent, "LISTEN_FDS=x", nil, `socket activation: LISTEN_FDS is "x", want 1 (agent)`},
		{"two for one", agent, "LISTEN_FDS=2 LISTEN_FDNAMES=agent:agent", []*os.File{good, good}, `socket activation: LISTEN_FDS is "2", want 1 (agent)`},
		{"one for two", agent + " admin=/x=600", one, []*os.File{good}, `socket activation: LISTEN_FDS is "1", want 2 (agent, admin)`},
		{"one twice", agent + " admin=/x=600", "LISTEN_FDS=2 LISTEN_FDNAMES=agent:agent", []*os.File{good, good}, "socket activation: file descriptor 4 (agent): has the name of another one"},
		{"other name", agent, "LISTEN_FDS=1 LISTEN_FDNAMES=http", []*os.File{good}, "socket activation: file descriptor 3 (http): is not one of agent"},
		{"file", agent, one, []*os.File{plain}, third + "is not a socket"},
		{"TCP", agent, one, []*os.File{tcpSocket(t)}, third + "is not a Unix socket"},
		{"datagram", agent, one, []*os.File{datagram}, third + "is not a stream socket"},
		{"not listening", agent, one, []*os.File{silent}, third + "is not listening"},
		{"abstract", agent, one, []*os.File{abstract}, third + "is bound to the abstract name " + abstract.Name() + ", which every user can reach; want " + path},
		{"other path", agent, one, []*os.File{elsewhere}, third + "is bound to " + elsewhere.Name() + ", want " + path},
		{"too open", "agent=" + wide.Name() + "=600", one, []*os.File{wide}, third + "is bound to " + wide.Name() + " with mode 0666, want at most 0600"},
		{"open to the group", "agent=" + group.Name() + "=600", one, []*os.File{group}, third + "is bound to " + group.Name() + " with mode 0620, want at most 0600"},
		{"replaced", "agent=" + replaced.Name() + "=600", one, []*os.File{replaced}, third + "is bound to " + replaced.Name() + ", where there is no socket now"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := withSockets(t, test.wanted, test.environment, test.files...); got != test.want {
				t.Errorf("\ngot  %s\nwant %s", got, test.want)
			}
		})
	}
	os.Remove(path)
	if got := withSockets(t, agent, one, good); !strings.HasPrefix(got, third+"lstat "+path) {
		t.Errorf("removed: got %s", got)
	}
}

// The broker's loopback socket may come with its Unix socket, or not at all.
func TestLoopback(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broker.sock")
	broker := unixSocket(t, syscall.SOCK_STREAM, path, 0o600)
	wanted := "broker=" + path + "=600 loopback=loopback=0"
	both := "LISTEN_FDS=2 LISTEN_FDNAMES=broker:loopback"
	elsewhere, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	open, err := elsewhere.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for name, test := range map[string]struct {
		environment string
		files       []*os.File
		want        string
	}{
		"reachable from elsewhere": {both, []*os.File{broker, open}, "socket activation: file descriptor 4 (loopback): is bound to 0.0.0.0, which other machines can reach"},
		"a Unix socket":            {both, []*os.File{broker, broker}, "socket activation: file descriptor 4 (loopback): is not an IPv4 socket"},
		"alone":                    {"LISTEN_FDS=1 LISTEN_FDNAMES=loopback", []*os.File{tcpSocket(t)}, "socket activation: broker was not passed"},
		"three":                    {"LISTEN_FDS=3", []*os.File{broker, broker, broker}, `socket activation: LISTEN_FDS is "3", want 1 (broker, loopback)`},
	} {
		if got := withSockets(t, wanted, test.environment, test.files...); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, test.want)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	loopback, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer loopback.Close()
	answers := make(chan string, 2)
	go func() { answers <- dial(path) }()
	go func() {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			answers <- err.Error()
			return
		}
		answers <- firstLine(conn)
	}()
	if got := withSockets(t, wanted, both, broker, loopback); got != `2 sockets, LISTEN_FDS ""` {
		t.Fatalf("got %s", got)
	}
	for range 2 {
		if got := <-answers; got != "broker" && got != "loopback" {
			t.Errorf("got %s", got)
		}
	}
	go func() { answers <- dial(path) }()
	if got := withSockets(t, wanted, "LISTEN_FDS=1 LISTEN_FDNAMES=broker", broker); got != `1 sockets, LISTEN_FDS ""` {
		t.Errorf("without the optional one: got %s", got)
	}
	<-answers
}

// A promised descriptor that is closed may meanwhile be a file of the Go runtime;
// either way it is rejected.
func TestClosedDescriptor(t *testing.T) {
	const third = "socket activation: file descriptor 3 (agent): is "
	got := withSockets(t, "agent=/x=600", "LISTEN_FDS=1 LISTEN_FDNAMES=agent")
	if got != third+"closed" && got != third+"not a socket" {
		t.Errorf("got %s", got)
	}
	if err := check(1<<20, Socket{}); err == nil || err.Error() != "is closed" {
		t.Errorf("got %v, want is closed", err)
	}
}

func TestNotActivated(t *testing.T) {
	t.Setenv("LISTEN_FDS", "1")
	for _, pid := range []string{"", "1", "x"} {
		t.Setenv("LISTEN_PID", pid)
		if got, err := Listeners(Socket{Name: "agent"}); got != nil || err != nil {
			t.Errorf("LISTEN_PID %q: got %v, %v, want none", pid, got, err)
		}
	}
}

// Two sockets under names, in another order than they are wanted in.
func TestListenersByName(t *testing.T) {
	dir := t.TempDir()
	agent := unixSocket(t, syscall.SOCK_STREAM, filepath.Join(dir, "agent.sock"), 0o666)
	admin := unixSocket(t, syscall.SOCK_STREAM, filepath.Join(dir, "admin.sock"), 0o600)
	wanted := "agent=" + agent.Name() + "=666 admin=" + admin.Name() + "=600"
	answers := make(chan string, 2)
	for _, path := range []string{agent.Name(), admin.Name()} {
		go func() { answers <- filepath.Base(path) + " " + dial(path) }()
	}
	got := withSockets(t, wanted, "LISTEN_FDS=2 LISTEN_FDNAMES=admin:agent", admin, agent)
	if want := `2 sockets, LISTEN_FDS ""`; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	for range 2 {
		if got := <-answers; got != "agent.sock agent" && got != "admin.sock admin" {
			t.Errorf("got %s", got)
		}
	}
}

// dial returns the line that the socket answers with, or the error.
func dial(path string) string {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return err.Error()
	}
	return firstLine(conn)
}

func firstLine(conn net.Conn) string {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(line, "\n")
}

// systemd's own tool listens and starts the daemon at the first
// connection, with and without names. The file of the socket outlives the daemon.
func TestSystemdSocketActivate(t *testing.T) {
	tool, err := exec.LookPath("systemd-socket-activate")
	if err != nil {
		t.Fatal("systemd-socket-activate is missing: install systemd")
	}
	for _, names := range []string{"--fdname=agent", "--setenv=X=1"} {
		path := filepath.Join(t.TempDir(), "agent.sock")
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", "-c", `umask 0177; exec "$@"`, "sh", tool, "-l", path, names, "-E", childVariable, self(t))
		cmd.Env = append(os.Environ(), childVariable+"=agent="+path+"=600")
		var out strings.Builder
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if got := dialWhenReady(path); got != "agent" {
			t.Errorf("%s: got %s, want agent", names, got)
		}
		if err := cmd.Wait(); err != nil || out.String() != "1 sockets, LISTEN_FDS \"\"\n" {
			t.Errorf("%s: %v, got %s", names, err, &out)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s: the daemon removed systemd's socket: %v", names, err)
		}
	}
}

// dialWhenReady waits until the socket listens: its file exists a moment before.
func dialWhenReady(path string) string {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		conn, err := net.Dial("unix", path)
		if err == nil {
			return firstLine(conn)
		}
	}
	return "nobody listened within 10 s"
}
