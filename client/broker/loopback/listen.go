package loopback

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// loopbackDevice is the loopback interface.
const loopbackDevice = "lo"

// ListenAll listens on a port of every address of the loopback interface: the socket is
// bound to 0.0.0.0 and to the device lo (SO_BINDTODEVICE, for which Linux before 5.7
// wants a capability), so that nothing arrives from another machine. Connections of this
// machine to its other addresses arrive, and have to be closed.
func ListenAll(port uint16) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var bound error
		err := raw.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), loopbackDevice) })
		if err != nil {
			return err
		}
		return bound
	}}
	return config.Listen(context.Background(), "tcp4", net.JoinHostPort("0.0.0.0", strconv.Itoa(int(port))))
}

// Reach says from which addresses connections can come.
type Reach int

// A listener is for other machines too, for one address of the loopback interface, or
// for all of them.
const (
	Others Reach = iota
	One
	All
)

// ReachOf returns who can reach a listener.
func ReachOf(l net.Listener) Reach {
	at, err := netip.ParseAddrPort(l.Addr().String())
	switch {
	case err != nil:
		return Others
	case at.Addr().IsLoopback():
		return One
	case onDevice(l):
		return All
	}
	return Others
}

// onDevice reports whether a listener is bound to the loopback interface.
func onDevice(l net.Listener) bool {
	socket, ok := l.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	name := ""
	err = raw.Control(func(fd uintptr) { name, _ = unix.GetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE) })
	return err == nil && name == loopbackDevice
}
