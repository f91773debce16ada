package ticket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"holdfast/internal/fault"
)

// The layout of sock_diag(7) messages: struct nlmsghdr, then inet_diag_req_v2 in
// requests and inet_diag_msg in answers, each with an inet_diag_sockid inside.
const (
	headerSize  = 16
	sockidSize  = 48
	requestSize = headerSize + 8 + sockidSize
	answerSize  = headerSize + 4 + sockidSize + 20
	errorSize   = headerSize + 4
	sequence    = 1
	// stateEstablished is TCP_ESTABLISHED (include/net/tcp_states.h).
	stateEstablished = 1
)

// A socket is the client's end of a connection as the kernel describes it.
type socket struct {
	state          uint8
	client, server netip.AddrPort
	uid, inode     uint32
}

// established returns the client's end of a TCP connection between two loopback
// addresses. Any state but ESTABLISHED is rejected: the kernel then no longer knows
// the socket's owner.
func established(client, server netip.AddrPort) (socket, error) {
	client, server = unmapped(client), unmapped(server)
	if !client.Addr().IsLoopback() || !server.Addr().IsLoopback() {
		return socket{}, denied("connect to the loopback address of this machine", "the connection is not between loopback addresses")
	}
	s, err := query(client, server)
	if err != nil {
		return socket{}, &fault.Error{
			Kind: fault.Denied, Message: "the owner of the connection cannot be determined",
			Hint: "connect from the broker's network namespace, and keep the connection open", Err: err,
		}
	}
	if !s.joins(client, server) {
		return socket{}, denied("keep the connection open until the answer has arrived", "the connection is no longer established")
	}
	return s, nil
}

// joins reports whether the socket is the end of an established connection between
// these addresses: without one, the kernel answers with a socket that listens at the
// first address, and sockets that are closing belong to uid 0.
func (s socket) joins(client, server netip.AddrPort) bool {
	return s.state == stateEstablished && s.client == client && s.server == server && s.inode != 0
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// query asks the kernel for one TCP socket by its addresses, as that socket's
// owner sees them.
func query(source, destination netip.AddrPort) (socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return socket{}, fmt.Errorf("sock_diag: %w", err)
	}
	defer unix.Close(fd)
	limit := unix.Timeval{Sec: 1} // the kernel answers at once
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return socket{}, fmt.Errorf("sock_diag: %w", err)
	}
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := unix.Sendto(fd, request(source, destination), 0, kernel); err != nil {
		return socket{}, fmt.Errorf("sock_diag: %w", err)
	}
	answer := make([]byte, 4096)
	for {
		n, from, err := unix.Recvfrom(fd, answer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return socket{}, fmt.Errorf("sock_diag: %w", err)
		}
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
			return socket{}, errors.New("sock_diag: an answer that is not the kernel's")
		}
		return parseAnswer(answer[:n])
	}
}

// request builds inet_diag_req_v2 for one socket. Addresses and ports are in
// network order, the rest in the machine's.
func request(source, destination netip.AddrPort) []byte {
	family := byte(unix.AF_INET)
	if source.Addr().Is6() {
		family = unix.AF_INET6
	}
	b := make([]byte, 0, requestSize)
	b = binary.NativeEndian.AppendUint32(b, requestSize)
	b = binary.NativeEndian.AppendUint16(b, unix.SOCK_DIAG_BY_FAMILY)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, sequence)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0)) // any state: it is judged by the answer
	b = binary.BigEndian.AppendUint16(b, source.Port())
	b = binary.BigEndian.AppendUint16(b, destination.Port())
	b = appendAddress(b, source.Addr())
	b = appendAddress(b, destination.Addr())
	b = binary.NativeEndian.AppendUint32(b, 0)             // any interface
	return binary.NativeEndian.AppendUint64(b, ^uint64(0)) // any cookie
}

// appendAddress appends an address in the first bytes of sixteen.
func appendAddress(b []byte, a netip.Addr) []byte {
	var field [16]byte
	copy(field[:], a.AsSlice())
	return append(b, field[:]...)
}

// parseAnswer reads the first message of an answer.
func parseAnswer(b []byte) (socket, error) {
	if len(b) < errorSize {
		return socket{}, errors.New("sock_diag: the answer is cut")
	}
	size, kind := binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint16(b[4:])
	if kind == unix.NLMSG_ERROR {
		return socket{}, fmt.Errorf("sock_diag: %w", unix.Errno(-int32(binary.NativeEndian.Uint32(b[headerSize:]))))
	}
	if size > uint32(len(b)) || size < answerSize || kind != unix.SOCK_DIAG_BY_FAMILY || binary.NativeEndian.Uint32(b[8:]) != sequence {
		return socket{}, errors.New("sock_diag: not an answer about one socket")
	}
	m := b[headerSize:]
	id, rest := m[4:4+sockidSize], m[4+sockidSize:]
	client, err1 := address(m[0], id[4:20], id[0:2])
	server, err2 := address(m[0], id[20:36], id[2:4])
	if err := errors.Join(err1, err2); err != nil {
		return socket{}, err
	}
	return socket{
		state: m[1], client: client, server: server,
		uid: binary.NativeEndian.Uint32(rest[12:]), inode: binary.NativeEndian.Uint32(rest[16:]),
	}, nil
}

// address reads an address of inet_diag_sockid. IPv6 sockets that speak IPv4 have
// mapped ones.
func address(family byte, ip, port []byte) (netip.AddrPort, error) {
	var a netip.Addr
	switch family {
	case unix.AF_INET:
		a = netip.AddrFrom4([4]byte(ip))
	case unix.AF_INET6:
		a = netip.AddrFrom16([16]byte(ip)).Unmap()
	default:
		return netip.AddrPort{}, fmt.Errorf("sock_diag: address family %d", family)
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port)), nil
}
