// Package bus connects to a D-Bus message bus of this machine with care, for the
// few packages that talk to the desktop or to systemd-logind.
//
// Start at [Dial]. An address is used only when every entry of it is a Unix socket
// ([Sockets]), and a connection only when the bus's own user or root listens at its
// other end: any user can listen on an abstract name. The package starts no
// process to get a bus (no autolaunch, no unixexec:), sends nothing over a network, and
// authenticates only with EXTERNAL, which the kernel vouches for.
//
// It does not protect against a bus that runs as the right user and lies: what a
// name on the bus may do is the bus's policy.
package bus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// Timeout bounds how long a bus may take to accept and greet a new connection.
const Timeout = 5 * time.Second

// Options says how to connect.
type Options struct {
	UID         uint32             // the user whose bus it is; root may listen as well
	Descriptors bool               // file descriptors may be received; without it the bus delivers none
	Signals     dbus.SignalHandler // receives signals; nil: godbus's default handler
}

// Dial connects to the bus at address, a list of server addresses, of which the
// first that accepts a connection is used. The connection is ready for calls. It
// ends with ctx; the caller closes it otherwise.
func Dial(ctx context.Context, address string, o Options) (*dbus.Conn, error) {
	names, err := Sockets(address)
	if err != nil {
		return nil, err
	}
	socket, err := dialAny(ctx, names, o.UID)
	if err != nil {
		return nil, err
	}
	silent := time.AfterFunc(Timeout, func() { socket.Close() }) // makes greet return
	conn, err := greet(ctx, socket, o)
	if !silent.Stop() {
		err = fmt.Errorf("the bus does not answer: %w", errors.Join(err, context.DeadlineExceeded))
	}
	if err != nil {
		socket.Close()
		return nil, err
	}
	return conn, nil
}

// Check fails unless uid or root listens on every socket of a bus address. It is
// for libraries that open the connection themselves. A listener that changes
// between Check and that connection is not noticed; to take the place of a running
// bus, it would have to end the bus first.
func Check(ctx context.Context, address string, uid uint32) error {
	names, err := Sockets(address)
	if err != nil {
		return err
	}
	for _, name := range names {
		socket, err := dialSocket(ctx, name, uid)
		if err != nil {
			return err
		}
		socket.Close()
	}
	return nil
}

// dialAny connects to the first socket on which uid or root listens.
func dialAny(ctx context.Context, names []string, uid uint32) (*net.UnixConn, error) {
	var errs []error
	for _, name := range names {
		socket, err := dialSocket(ctx, name, uid)
		if err == nil {
			return socket, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func dialSocket(ctx context.Context, name string, uid uint32) (*net.UnixConn, error) {
	dialer := net.Dialer{Timeout: Timeout}
	conn, err := dialer.DialContext(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	socket := conn.(*net.UnixConn) // what "unix" dials is
	if err := checkListener(socket, uid); err != nil {
		socket.Close()
		return nil, err
	}
	return socket, nil
}

// checkListener fails unless uid or root listens at the other end of socket.
func checkListener(socket *net.UnixConn, uid uint32) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var listener *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		listener, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if listener.Uid != uid && listener.Uid != 0 {
		return fmt.Errorf("the bus belongs to uid %d", listener.Uid)
	}
	return nil
}

// greet authenticates and registers on the bus.
func greet(ctx context.Context, socket *net.UnixConn, o Options) (*dbus.Conn, error) {
	options := []dbus.ConnOption{dbus.WithContext(ctx)}
	if o.Signals != nil {
		options = append(options, dbus.WithSignalHandler(o.Signals))
	}
	conn, err := open(socket, o.Descriptors, options)
	if err != nil {
		return nil, err
	}
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		conn.Close()
		return nil, fmt.Errorf("authenticate: %w", err)
	}
	if err := conn.Hello(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("hello: %w", err)
	}
	return conn, nil
}

func open(socket *net.UnixConn, descriptors bool, options []dbus.ConnOption) (*dbus.Conn, error) {
	if descriptors {
		return dbus.DialUnix(socket, options...)
	}
	return dbus.NewConn(socket, options...) // unlike DialUnix, it negotiates no descriptors
}
