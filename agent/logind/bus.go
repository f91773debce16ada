package logind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"

	"holdfast/internal/bus"
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

// callTimeout is how long the bus and logind may take to answer a call.
const callTimeout = 5 * time.Second

// connect connects to the bus and subscribes to the signals that are followed. No
// descriptors are received over this connection: any program on the bus could send
// some until this process has as many as it may.
func connect(ctx context.Context, address string) (*watch, error) {
	w := &watch{inbox: newInbox(), address: address}
	var err error
	w.conn, err = bus.Dial(ctx, address, bus.Options{UID: uint32(os.Geteuid()), Signals: w.inbox})
	if err != nil {
		return nil, fmt.Errorf("connect to the system bus: %w", err)
	}
	if err := w.subscribe(ctx); err != nil {
		w.close()
		return nil, fmt.Errorf("subscribe on the system bus: %w", err)
	}
	return w, nil
}

// subscribe asks the bus for the signals, and then for logind's unique name.
func (w *watch) subscribe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, options := range [][]dbus.MatchOption{
		{dbus.WithMatchSender(theBus), dbus.WithMatchInterface(theBus), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, login1)},
		{dbus.WithMatchSender(login1), dbus.WithMatchInterface(manager), dbus.WithMatchMember("PrepareForSleep")},
		{dbus.WithMatchSender(login1), dbus.WithMatchInterface(session), dbus.WithMatchMember("Lock")},
		{dbus.WithMatchSender(login1), dbus.WithMatchInterface(properties), dbus.WithMatchMember("PropertiesChanged"), dbus.WithMatchArg(0, session)},
	} {
		if err := w.conn.AddMatchSignalContext(ctx, options...); err != nil {
			return err
		}
	}
	return w.findOwner(ctx)
}

func (w *watch) findOwner(ctx context.Context) error {
	var owner string
	err := w.conn.BusObject().CallWithContext(ctx, theBus+".GetNameOwner", 0, login1).Store(&owner)
	var refused dbus.Error
	if errors.As(err, &refused) && refused.Name == theBus+".Error.NameHasNoOwner" {
		return nil // the bus announces the next one
	}
	if err == nil {
		w.inbox.first(owner)
	}
	return err
}

// takeInhibitor returns the descriptor that delays the machine's sleep while it is
// open. A connection of its own receives it and is closed at once, together with
// any other descriptor that was sent to it.
func takeInhibitor(ctx context.Context, address string) (dbus.UnixFD, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := bus.Dial(ctx, address, bus.Options{UID: uint32(os.Geteuid()), Descriptors: true, Signals: newInbox()})
	if err != nil {
		return -1, err
	}
	defer conn.Close()
	call := conn.Object(login1, root).Go(manager+".Inhibit", dbus.FlagNoAutoStart, nil,
		"sleep", "holdfast", "forgets PINs before the machine sleeps", "delay")
	select {
	case <-call.Done:
	case <-ctx.Done():
		conn.Close() // ends the call, unless the answer has arrived, with a descriptor
		<-call.Done
	}
	var fd dbus.UnixFD
	if err := call.Store(&fd); err != nil {
		return -1, errors.Join(ctx.Err(), err)
	}
	if err := ctx.Err(); err != nil {
		return -1, errors.Join(err, syscall.Close(int(fd)))
	}
	return fd, nil
}
