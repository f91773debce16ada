package logind

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"
)

// The names on the bus, org.freedesktop.login1(5).
const (
	login1   = "org.freedesktop.login1"
	manager  = login1 + ".Manager"
	session  = login1 + ".Session"
	root     = dbus.ObjectPath("/org/freedesktop/login1")
	sessions = root + "/session"

	theBus      = "org.freedesktop.DBus"
	properties  = theBus + ".Properties"
	ownerSignal = theBus + ".NameOwnerChanged"
)

// callPatience is how long the bus and logind may take to answer.
const callPatience = 5 * time.Second

// dial connects to the first socket where somebody listens.
func dial(ctx context.Context, sockets []string) (*net.UnixConn, error) {
	var errs []error
	for _, name := range sockets {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", name)
		if err == nil {
			return conn.(*net.UnixConn), nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// connect connects to the bus, and has it send what is followed. No descriptors can
// be passed over this connection: anybody on the bus could send some until this
// process has as many as it may.
func connect(ctx context.Context, sockets []string) (*watch, error) {
	socket, err := dial(ctx, sockets)
	if err != nil {
		return nil, fmt.Errorf("connect to the system bus: %w", err)
	}
	w := &watch{inbox: newInbox(), sockets: sockets}
	ctx, w.cancel = context.WithCancel(ctx)
	// NewConn, unlike ConnectUnix, never has descriptors passed.
	w.conn, err = dbus.NewConn(socket, dbus.WithContext(ctx), dbus.WithSignalHandler(w.inbox))
	if err != nil {
		w.cancel()
		socket.Close()
		return nil, err
	}
	// A bus that takes the connection and says nothing is given up on.
	silent := time.AfterFunc(callPatience, w.cancel)
	defer silent.Stop()
	if err := w.begin(ctx); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// byUID is the one way to authenticate that the kernel vouches for, and needs no
// files in anybody's home.
func byUID() []dbus.Auth { return []dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))} }

// begin says hello, asks for the signals, and then who logind is now.
func (w *watch) begin(ctx context.Context) error {
	if err := w.conn.Auth(byUID()); err != nil {
		return fmt.Errorf("authenticate to the system bus: %w", err)
	}
	if err := w.conn.Hello(); err != nil {
		return fmt.Errorf("greet the system bus: %w", err)
	}
	for _, options := range [][]dbus.MatchOption{
		{dbus.WithMatchSender(theBus), dbus.WithMatchInterface(theBus), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, login1)},
		{dbus.WithMatchSender(login1), dbus.WithMatchInterface(manager), dbus.WithMatchMember("PrepareForSleep")},
		{dbus.WithMatchSender(login1), dbus.WithMatchInterface(session), dbus.WithMatchMember("Lock")},
		{dbus.WithMatchSender(login1), dbus.WithMatchInterface(properties), dbus.WithMatchMember("PropertiesChanged"), dbus.WithMatchArg(0, session)},
	} {
		if err := w.conn.AddMatchSignalContext(ctx, options...); err != nil {
			return fmt.Errorf("subscribe on the system bus: %w", err)
		}
	}
	return w.findOwner(ctx)
}

func (w *watch) findOwner(ctx context.Context) error {
	var owner string
	err := w.conn.BusObject().CallWithContext(ctx, theBus+".GetNameOwner", 0, login1).Store(&owner)
	var refused dbus.Error
	if errors.As(err, &refused) && refused.Name == theBus+".Error.NameHasNoOwner" {
		return nil // the bus will say when there is one
	}
	if err == nil {
		w.inbox.first(owner)
	}
	return err
}

// takeInhibitor returns the descriptor that keeps the machine from sleeping while
// it is open. It comes over a connection of its own, which is closed at once: what
// else is passed over it, or comes too late, is gone with it.
func takeInhibitor(ctx context.Context, sockets []string) (dbus.UnixFD, error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	socket, err := dial(ctx, sockets)
	if err != nil {
		return -1, err
	}
	conn, err := dbus.ConnectUnix(socket, dbus.WithContext(ctx), dbus.WithAuth(byUID()...), dbus.WithSignalHandler(newInbox()))
	if err != nil {
		socket.Close()
		return -1, err
	}
	defer conn.Close()
	var fd dbus.UnixFD
	err = conn.Object(login1, root).CallWithContext(ctx, manager+".Inhibit", dbus.FlagNoAutoStart,
		"sleep", "holdfast", "forgets PINs before the machine sleeps", "delay").Store(&fd)
	return fd, err
}
