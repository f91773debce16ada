package ticket

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"holdfast/internal/peer"
)

// roleVariable makes the test binary play a part in a test instead of running
// tests: real processes with parents, users and connections of their own.
const roleVariable = "HOLDFAST_TICKET_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		if err := play(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if path, err := program(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

// A part is what a process in a role has at hand.
type part struct {
	in    *bufio.Reader
	conns []net.Conn

	signals chan os.Signal
}

func play(steps []string) error {
	p := &part{in: bufio.NewReader(os.Stdin), signals: make(chan os.Signal, 1)}
	signal.Notify(p.signals, unix.SIGUSR1)
	for _, step := range steps {
		word, value, _ := strings.Cut(step, "=")
		if err := p.step(word, value); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	return nil
}

func (p *part) step(word, value string) error {
	number, _ := strconv.Atoi(value)
	switch word {
	case "connect", "dial": // connect to a Unix socket, or a TCP address
		network := map[string]string{"connect": "unix", "dial": "tcp"}[word]
		conn, err := net.Dial(network, value)
		if err == nil && word == "dial" {
			fmt.Println(conn.LocalAddr())
		}
		p.conns = append(p.conns, conn)
		return err
	case "mapped": // connect to an IPv4 port by an IPv6 socket
		return dialMapped(number)
	case "hangup":
		return p.conns[len(p.conns)-1].Close()
	case "plugin": // run a plugin, which connects to the socket
		return run(value, nil)
	case "session": // the same in a session of its own
		return run(value, &syscall.SysProcAttr{Setsid: true})
	case "shell": // a plugin below a shell that stays
		cmd := exec.Command("/bin/sh", "-c", `"$0" connect="$1" wait; :`, os.Args[0], value)
		cmd.Stdin = os.Stdin
		return cmd.Start()
	case "forked": // a process in between that ends: the kernel gives its child away
		return runAway(value)
	case "setuid":
		return errors.Join(syscall.Setgroups(nil), syscall.Setgid(number), syscall.Setuid(number), unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0))
	case "subreaper":
		return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	case "undumpable":
		return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	case "descriptors":
		return openMany(number)
	case "look": // as a broker would
		_, err := hasDescriptor(int32(number), 1, maxDescriptors)
		fmt.Printf("denied: %v\n%#v\n", err, err)
		return nil
	case "say":
		_, err := fmt.Println(value)
		return err
	case "signal": // until SIGUSR1; a plugin has the same input
		<-p.signals
	case "wait": // until the test says so or is gone
		_, err := p.in.ReadString('\n')
		return err
	default:
		return errors.New("no such step")
	}
	return nil
}

// run starts a plugin and leaves it running: it ends when its input does.
func run(path string, attributes *syscall.SysProcAttr) error {
	cmd := exec.Command("/proc/self/exe", "connect="+path, "wait")
	cmd.SysProcAttr, cmd.Stdout, cmd.Stdin = attributes, os.Stdout, os.Stdin
	return cmd.Start()
}

// runAway starts a process that starts a plugin and ends.
func runAway(path string) error {
	cmd := exec.Command("/proc/self/exe", "plugin="+path)
	cmd.Stdin = os.Stdin
	return cmd.Run()
}

func dialMapped(port int) error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	address := &unix.SockaddrInet6{Port: port, Addr: [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}}
	return unix.Connect(fd, address)
}

func openMany(n int) error {
	limit := uint64(n + 100)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	for range n {
		if _, err := unix.Dup(0); err != nil {
			return err
		}
	}
	return nil
}

// A worker is a process in a role.
type worker struct {
	t   *testing.T
	cmd *exec.Cmd
	in  interface{ Write([]byte) (int, error) }
	out *bufio.Reader
}

// program is a copy of the test binary that every user may run.
var program = sync.OnceValues(func() (string, error) {
	directory, err := os.MkdirTemp("", "holdfast-ticket-test")
	if err != nil {
		return "", err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	path := filepath.Join(directory, "role")
	return path, errors.Join(os.Chmod(directory, 0o755), os.WriteFile(path, self, 0o755), os.Chmod(path, 0o755))
})

// start starts a process that takes the steps. It ends with the test.
func start(t *testing.T, steps ...string) *worker {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, steps...)
	cmd.Env = []string{roleVariable + "=1", "GORACE=atexit_sleep_ms=0"}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe() // not StdoutPipe: the plugin has it too, and Wait would wait for it
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	w := &worker{t: t, cmd: cmd, in: in, out: bufio.NewReader(read)}
	t.Cleanup(func() { w.kill(); in.Close(); read.Close() })
	return w
}

func (w *worker) line() string {
	w.t.Helper()
	timer := time.AfterFunc(20*time.Second, func() { w.cmd.Process.Kill() })
	defer timer.Stop()
	line, err := w.out.ReadString('\n')
	if err != nil || strings.HasPrefix(line, "failed") {
		w.t.Fatalf("got %q, %v, want a line", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (w *worker) kill() {
	w.cmd.Process.Kill()
	w.cmd.Wait()
}

func (w *worker) pid() int32 { return int32(w.cmd.Process.Pid) }

// listen makes a socket that every user may connect to.
func listen(t *testing.T) (*net.UnixListener, string) {
	t.Helper()
	directory, err := os.MkdirTemp("", "hf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	path := filepath.Join(directory, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := errors.Join(os.Chmod(directory, 0o755), os.Chmod(path, 0o777)); err != nil {
		t.Fatal(err)
	}
	return l, path
}

// identify accepts and identifies one peer.
func identify(t *testing.T, l *net.UnixListener) *peer.Peer {
	t.Helper()
	if err := l.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p, err := peer.FromConn(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// until waits until a condition holds.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited for: " + what)
		}
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test becomes other users and has to run as root")
	}
}
