package notify

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

// Socket is a listening socket that the daemon wants from systemd: a Unix socket,
// or with Loopback a TCP socket that only this machine can reach.
type Socket struct {
	Name     string      // its name in LISTEN_FDNAMES (FileDescriptorName= of the unit)
	Path     string      // where it is bound; never an abstract name
	Mode     fs.FileMode // the most permissions that its file may have; only the write bits count
	Loopback bool        // it is a TCP socket of the loopback interface instead
	Optional bool        // systemd need not pass it; optional sockets come last
	Keeps    bool        // rather than one socket: the listeners that [Keep] was given
}

// Listeners takes over the sockets that systemd passed to this process. They must
// be the wanted ones, each once, and nothing else; the order does not matter where
// they have names. Listeners returns nil without an error when no socket unit
// started the process. An error says which descriptor is wrong and why; the process
// should then end. The listener of a Unix socket is a [*net.UnixListener], that of a
// loopback socket a [*net.TCPListener].
//
// Listeners removes the environment variables, so that child processes do not use
// them. Closing a listener leaves the socket's file alone: systemd owns it. Call
// Listeners once, before the process opens files: a descriptor that the environment
// promises and that is closed could otherwise be another file since.
func Listeners(wanted ...Socket) (map[string]net.Listener, error) {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	count, named := os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES") != ""
	files := activation.Files(true)
	wanted, keeps := split(wanted)
	units := len(files) // the descriptors of socket units
	for _, f := range files {
		if named && isKept(f.Name()) {
			units--
		}
	}
	if n := required(wanted); units < n && (units > 0 || len(files) == 0) || units > len(wanted) {
		return nil, fmt.Errorf("socket activation: LISTEN_FDS is %q, want %d (%s)", count, n, names(wanted))
	}
	listeners := map[string]net.Listener{}
	for i, f := range files {
		var want Socket
		var err error
		switch {
		case !named:
			want = wanted[i]
		case keeps && isKept(f.Name()):
			want = Socket{Name: f.Name(), Loopback: true}
		default:
			want, err = find(wanted, f.Name(), listeners)
		}
		if err == nil {
			listeners[want.Name], err = take(f, want)
		}
		if err != nil {
			return nil, fmt.Errorf("socket activation: file descriptor %d (%s): %w", firstDescriptor+i, f.Name(), err)
		}
	}
	for _, s := range wanted {
		if !s.Optional && units > 0 && listeners[s.Name] == nil {
			return nil, fmt.Errorf("socket activation: %s was not passed", s.Name)
		}
	}
	return listeners, nil
}

// split returns the single sockets among the wanted ones, and whether those of [Keep]
// are wanted.
func split(wanted []Socket) (single []Socket, keeps bool) {
	single = slices.DeleteFunc(slices.Clone(wanted), func(s Socket) bool { return s.Keeps })
	return single, len(single) < len(wanted)
}

// required returns how many of the sockets systemd has to pass.
func required(wanted []Socket) (n int) {
	for _, s := range wanted {
		if !s.Optional {
			n++
		}
	}
	return n
}

// firstDescriptor is SD_LISTEN_FDS_START of sd_listen_fds(3).
const firstDescriptor = 3

func names(sockets []Socket) string {
	var all []string
	for _, s := range sockets {
		all = append(all, s.Name)
	}
	return strings.Join(all, ", ")
}

// find returns the wanted socket of that name, unless it was taken before.
func find(wanted []Socket, name string, taken map[string]net.Listener) (Socket, error) {
	for _, s := range wanted {
		if s.Name != name {
			continue
		}
		if taken[name] != nil {
			return s, errors.New("has the name of another one")
		}
		return s, nil
	}
	return Socket{}, fmt.Errorf("is not one of %s", names(wanted))
}

// take makes a listener of a descriptor if it is the wanted socket.
func take(f *os.File, want Socket) (net.Listener, error) {
	if err := check(int(f.Fd()), want); err != nil {
		return nil, err
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	f.Close()
	switch l := l.(type) {
	case *net.UnixListener:
		l.SetUnlinkOnClose(false)
		return l, nil
	case *net.TCPListener:
		return l, nil
	}
	l.Close()
	return nil, fmt.Errorf("is a %T", l)
}

// check returns an error unless the descriptor is the wanted socket.
func check(fd int, want Socket) error {
	domain, notIt := unix.AF_UNIX, "is not a Unix socket"
	if want.Loopback {
		domain, notIt = unix.AF_INET, "is not an IPv4 socket"
	}
	options := []struct {
		option, want int
		wrong        string
	}{
		{unix.SO_DOMAIN, domain, notIt},
		{unix.SO_TYPE, unix.SOCK_STREAM, "is not a stream socket"},
		{unix.SO_ACCEPTCONN, 1, "is not listening"},
	}
	for _, o := range options {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, o.option)
		switch {
		case errors.Is(err, unix.EBADF):
			return errors.New("is closed")
		case errors.Is(err, unix.ENOTSOCK):
			return errors.New("is not a socket")
		case err != nil:
			return os.NewSyscallError("getsockopt", err)
		case got != o.want:
			return errors.New(o.wrong)
		}
	}
	if want.Loopback {
		return checkLoopback(fd)
	}
	return checkPath(fd, want)
}

// checkLoopback returns an error unless no other machine can reach the address.
func checkLoopback(fd int) error {
	address, err := unix.Getsockname(fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	bound, ok := address.(*unix.SockaddrInet4)
	if !ok {
		return fmt.Errorf("has an address of type %T", address)
	}
	device, err := unix.GetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE)
	if err != nil {
		return os.NewSyscallError("getsockopt", err)
	}
	if ip := net.IP(bound.Addr[:]); !ip.IsLoopback() && device != "lo" {
		return fmt.Errorf("is bound to %s, which other machines can reach", ip)
	}
	return nil
}

func checkPath(fd int, want Socket) error {
	address, err := unix.Getsockname(fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	bound, ok := address.(*unix.SockaddrUnix)
	switch {
	case !ok:
		return fmt.Errorf("has an address of type %T", address)
	case strings.HasPrefix(bound.Name, "@"):
		return fmt.Errorf("is bound to the abstract name %s, which every user can reach; want %s", bound.Name, want.Path)
	case bound.Name != want.Path:
		return fmt.Errorf("is bound to %s, want %s", bound.Name, want.Path)
	}
	return checkMode(want)
}

// checkMode compares only the write permissions: on Linux they decide which
// processes can connect (unix(7)), and systemd-socket-activate makes its sockets
// 0644.
func checkMode(want Socket) error {
	info, err := os.Lstat(want.Path)
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("is bound to %s, where there is no socket now", want.Path)
	}
	if mode := info.Mode().Perm(); mode&0o222&^want.Mode != 0 {
		return fmt.Errorf("is bound to %s with mode %#o, want at most %#o", want.Path, mode, want.Mode)
	}
	return nil
}
