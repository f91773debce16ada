package broker

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"holdfast/client/broker/loopback"
	"holdfast/internal/fault"
)

// bind makes the listener of a profile, or the shared one: where the command line
// says, where systemd listens, where it was before, else on any port. A port that
// is taken stays the one that is wanted: kubeconfigs name it.
func (f *front) bind(name, address string) (net.Listener, error) {
	if name != "" {
		return bound(address)
	}
	l, err := f.bindShared()
	if err != nil {
		return nil, err
	}
	if err := loopback.SetAddress(f.options.State, l.Addr().String()); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (f *front) bindShared() (net.Listener, error) {
	if l := f.options.Passed; l != nil {
		f.options.Passed = nil
		return l, nil
	}
	address := f.options.Listen
	if address == "" {
		kept, err := loopback.Address(f.options.State)
		if err != nil {
			return nil, err
		}
		if address = kept; address == "" {
			address = "127.0.0.1:0"
		}
	}
	l, err := bound(address)
	if err == nil {
		f.options.Listen = l.Addr().String() // port 0 was asked for once
	}
	return l, err
}

// bound listens at an address of the loopback interface.
func bound(address string) (net.Listener, error) {
	if err := loopback.CheckAddress(address); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp4", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, &fault.Error{
			Kind:    fault.Busy,
			Message: fmt.Sprintf("the proxy cannot listen on %s: another process has the port", address),
			Hint:    "`ss -ltnp` shows which; end it, or give the proxy another port with `holdfast-broker --listen 127.0.0.1:PORT` and write the kubeconfigs again",
			Err:     err,
		}
	}
	return l, err
}
