package prompt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// busLimit bounds each conversation on the bus.
const busLimit = 2 * time.Second

// dialBus connects to the session's bus, which must be a socket of this machine
// on which uid itself, or root, listens. The connection does not outlive ctx.
func dialBus(ctx context.Context, address string, uid uint32) (*dbus.Conn, error) {
	name, err := busSocket(address)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	socket := raw.(*net.UnixConn) // what "unix" dials is
	if err := ownedBy(socket, uid); err != nil {
		socket.Close()
		return nil, err
	}
	conn, err := dbus.DialUnix(socket, dbus.WithContext(ctx))
	if err != nil {
		socket.Close()
		return nil, err
	}
	if err := conn.Auth(nil); err != nil {
		conn.Close()
		return nil, err
	}
	if err := conn.Hello(); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// busSocket returns the socket that a bus address names, of which only the first
// is looked at (D-Bus specification, "Server Addresses" and "Unix Domain Sockets").
// The name of an abstract socket begins with @.
func busSocket(address string) (string, error) {
	first, _, _ := strings.Cut(address, ";")
	list, found := strings.CutPrefix(first, "unix:")
	if !found {
		return "", fmt.Errorf("bus address %.80q is of another kind than unix", address)
	}
	for pair := range strings.SplitSeq(list, ",") {
		key, escaped, _ := strings.Cut(pair, "=")
		value, err := url.PathUnescape(escaped)
		if err != nil {
			return "", fmt.Errorf("bus address %.80q: %w", address, err)
		}
		switch {
		case key == "path" && strings.HasPrefix(value, "/"):
			return value, nil
		case key == "abstract" && value != "":
			return "@" + value, nil
		}
	}
	return "", fmt.Errorf("bus address %.80q names no socket", address)
}

// ownedBy fails unless uid or root listens at the other end: any user can listen
// on an abstract name.
func ownedBy(socket *net.UnixConn, uid uint32) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if peer.Uid != uid && peer.Uid != 0 {
		return fmt.Errorf("the bus belongs to uid %d", peer.Uid)
	}
	return nil
}
