package keyring

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"golang.org/x/sys/unix"
)

// checkListeners fails unless uid or root listens on every socket that a bus
// address names: any user can listen on an abstract name, or in a directory that
// others can write, and would be told every secret. The connection that is used
// is another one, so that a listener who changes in between is not seen: to take
// the place of a bus that is there, it would have to end first.
func checkListeners(ctx context.Context, address string, uid uint32) error {
	for one := range strings.SplitSeq(address, ";") {
		if one == "" {
			continue
		}
		name, err := socketOf(one)
		if err == nil {
			err = checkListener(ctx, name, uid)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// socketOf returns the socket of one address of a bus (D-Bus specification, "Unix
// Domain Sockets"). The name of an abstract socket begins with @.
func socketOf(address string) (string, error) {
	list, _ := strings.CutPrefix(address, "unix:")
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

func checkListener(ctx context.Context, name string, uid uint32) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", name)
	if err != nil {
		return err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn() // what "unix" dials is
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
		return fmt.Errorf("the session bus belongs to uid %d", peer.Uid)
	}
	return nil
}
