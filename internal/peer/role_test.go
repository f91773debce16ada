package peer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"holdfast/test/role"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	role.Main(m, func(_ string, steps []string) error { return play(steps) })
}

// A part is what a process in a role has at hand.
type part struct {
	in       *bufio.Reader
	listener *net.UnixListener
	conns    []*net.UnixConn
	peers    []*Peer
}

// play takes steps one by one. A step is a word and perhaps "=" and a value.
func play(steps []string) error {
	p := &part{in: bufio.NewReader(os.Stdin)}
	return role.Steps(steps, p.step)
}

func (p *part) step(word, value string) error {
	number, _ := strconv.Atoi(value)
	switch word {
	case "connect":
		return p.connect(value)
	case "setgroups":
		var groups []int
		for _, s := range strings.Split(value, ",") {
			g, err := strconv.Atoi(s)
			if err != nil {
				return err
			}
			groups = append(groups, g)
		}
		return syscall.Setgroups(groups)
	case "setgid":
		return syscall.Setgid(number)
	case "setuid":
		return syscall.Setuid(number)
	case "cgroup":
		return os.WriteFile(filepath.Join(value, "cgroup.procs"), []byte("0"), 0)
	case "name":
		return os.WriteFile(fmt.Sprintf("/proc/self/task/%d/comm", os.Getpid()), []byte(value), 0)
	case "exec":
		return syscall.Exec(value, []string{value}, nil)
	case "pass":
		return p.pass(value)
	case "receive":
		return p.receive(value)
	case "say":
		_, err := fmt.Println(value)
		return err
	case "wait": // until the test says so or is gone
		_, err := p.in.ReadString('\n')
		return err
	case "listen":
		return p.listen(value)
	case "descriptors": // so many more can be opened
		return leaveDescriptors(number)
	case "filter":
		return withoutPeerPidfd()
	case "accept":
		return p.accept()
	case "alive":
		return p.alive()
	case "reuse":
		return p.reusePIDs(value)
	}
	return errors.New("no such step")
}

func (p *part) connect(path string) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	p.conns = append(p.conns, conn)
	return err
}

// pass sends the first connection over a second one to the process at path.
func (p *part) pass(path string) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	defer conn.Close()
	file, err := p.conns[0].File()
	if err != nil {
		return err
	}
	_, _, err = conn.WriteMsgUnix([]byte{0}, unix.UnixRights(int(file.Fd())), nil)
	return err
}

// receive takes a connection that was passed to the socket at path, and writes
// to it.
func (p *part) receive(path string) error {
	if err := p.listen(path); err != nil {
		return err
	}
	conn, err := p.listener.AcceptUnix()
	if err != nil {
		return err
	}
	data, rights := make([]byte, 1), make([]byte, 64)
	_, n, _, _, err := conn.ReadMsgUnix(data, rights)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil {
		return err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	_, err = unix.Write(fds[0], []byte("hello"))
	return err
}

func (p *part) listen(path string) (err error) {
	p.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err == nil {
		err = os.Chmod(path, 0o777)
	}
	if err == nil {
		fmt.Println("listening")
	}
	return err
}

// leaveDescriptors takes descriptors until n are left of those that this process
// may open.
func leaveDescriptors(n int) error {
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}); err != nil {
		return err
	}
	var taken []int
	for {
		fd, err := unix.Dup(0)
		if errors.Is(err, unix.EMFILE) {
			break
		}
		if err != nil {
			return err
		}
		taken = append(taken, fd)
	}
	for _, fd := range taken[len(taken)-n:] {
		if err := unix.Close(fd); err != nil {
			return err
		}
	}
	return nil
}

// A verdict is what a process in a role found out about a peer.
type verdict struct {
	Identity Identity
	Error    string
	Gone     bool
	Unmapped bool
}

func verdictOf(id Identity, err error) verdict {
	v := verdict{Identity: id, Gone: errors.Is(err, ErrGone), Unmapped: errors.Is(err, ErrUnmapped)}
	if err != nil {
		v.Error = err.Error()
	}
	var r *Refused
	if errors.As(err, &r) {
		v.Identity = r.Identity
	}
	return v
}

func (v verdict) print() error { return json.NewEncoder(os.Stdout).Encode(v) }

func (p *part) accept() error {
	conn, err := p.listener.AcceptUnix()
	if err != nil {
		return err
	}
	p.conns = append(p.conns, conn)
	found, err := new(Identifier).FromConn(conn)
	if err != nil {
		return verdictOf(Identity{}, err).print()
	}
	p.peers = append(p.peers, found)
	return verdictOf(found.Identity, nil).print()
}

func (p *part) alive() error {
	last := p.peers[len(p.peers)-1]
	return verdictOf(last.Identity, last.Alive()).print()
}

// withoutPeerPidfd makes the kernel answer this process as one before 6.5 would:
// a seccomp filter on getsockopt's third argument.
func withoutPeerPidfd() error {
	const numberAt, thirdArgumentAt = 0, 32 // in struct seccomp_data (seccomp(2))
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: numberAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_GETSOCKOPT},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: thirdArgumentAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SO_PEERPIDFD},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOPROTOOPT)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}

// A process plays a role.
type process struct {
	*role.Process
	t *testing.T
}

// start starts a process that takes the steps. It ends with the test.
func start(t *testing.T, attributes *syscall.SysProcAttr, steps ...string) *process {
	t.Helper()
	return &process{role.Start(t, role.Options{Role: "steps", Attributes: attributes}, steps...), t}
}

// verdict reads what an accept or alive step found.
func (p *process) verdict() verdict {
	p.t.Helper()
	line := p.Line()
	var v verdict
	if err := json.Unmarshal([]byte(line), &v); err != nil {
		p.t.Fatalf("got %q, want a verdict", line)
	}
	return v
}

// identify accepts and identifies one peer, which has to succeed.
func identify(t *testing.T, l *net.UnixListener) *Peer {
	t.Helper()
	p, err := new(Identifier).FromConn(role.Accept(t, l))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}
