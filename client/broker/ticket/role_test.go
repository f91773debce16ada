package ticket

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/internal/peer"
	"holdfast/test/role"
)

func TestMain(m *testing.M) {
	role.Main(m, func(_ string, steps []string) error { return play(steps) })
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
	return role.Steps(steps, p.step)
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

// start starts a process that takes the steps. It ends with the test.
func start(t *testing.T, steps ...string) *role.Process {
	t.Helper()
	return role.Start(t, role.Options{Role: "steps"}, steps...)
}

// identify accepts and identifies one peer.
func identify(t *testing.T, l *net.UnixListener) *peer.Peer {
	t.Helper()
	p, err := new(peer.Identifier).FromConn(role.Accept(t, l))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}
