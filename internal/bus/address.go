package bus

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/godbus/dbus/v5"
)

// ErrAddress is in the chain of every error about an address that can never be used: a
// retry does not help.
var ErrAddress = errors.New("bus address")

var (
	errNone     = fmt.Errorf("%w: none is known", ErrAddress)
	errNotLocal = fmt.Errorf("%w: the bus is not at a Unix socket", ErrAddress)
)

// systemSocket is where the system bus listens (D-Bus specification, "Well-known
// Message Bus Instances").
const systemSocket = "unix:path=/var/run/dbus/system_bus_socket"

// System returns the address of the system bus: $DBUS_SYSTEM_BUS_ADDRESS, else the
// well-known one.
func System(getenv func(string) string) string {
	if address := getenv("DBUS_SYSTEM_BUS_ADDRESS"); address != "" {
		return address
	}
	return systemSocket
}

// Session returns the address of the session bus: $DBUS_SESSION_BUS_ADDRESS, else
// the socket that systemd makes in the runtime directory (file-hierarchy(7)). It is
// empty when neither is known.
func Session(getenv func(string) string) string {
	if address := getenv("DBUS_SESSION_BUS_ADDRESS"); address != "" {
		return address
	}
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return "unix:path=" + dbus.EscapeBusAddressValue(filepath.Join(dir, "bus"))
	}
	return ""
}

// Sockets returns the names of the Unix sockets in a list of server addresses, as
// package net has them: an abstract name begins with @ (D-Bus specification,
// "Server Addresses" and "Unix Domain Sockets"). One entry that is not exactly one
// absolute path or one abstract name makes the whole list unusable.
func Sockets(address string) ([]string, error) {
	if address == "" {
		return nil, errNone
	}
	var names []string
	for entry := range strings.SplitSeq(address, ";") {
		if entry == "" {
			continue
		}
		pairs, local := strings.CutPrefix(entry, "unix:")
		if !local {
			return nil, errNotLocal
		}
		name, err := socketOf(pairs)
		if err != nil {
			return nil, fmt.Errorf("%w %.80q: %w", ErrAddress, entry, err)
		}
		names = append(names, name)
	}
	if names == nil {
		return nil, errNotLocal
	}
	return names, nil
}

// socketOf returns the socket that the key=value pairs of one entry name.
func socketOf(pairs string) (name string, err error) {
	for pair := range strings.SplitSeq(pairs, ",") {
		key, escaped, _ := strings.Cut(pair, "=")
		if key != "path" && key != "abstract" {
			continue // guid, or a key of a later specification
		}
		value, err := dbus.UnescapeBusAddressValue(escaped)
		switch {
		case err != nil:
			return "", err
		case name != "" || value == "" || strings.ContainsRune(value, 0):
			return "", errors.New("want one path")
		case key == "abstract":
			name = "@" + value
		case !filepath.IsAbs(value): // package net takes a leading @ for an abstract name
			return "", errors.New("want an absolute path")
		default:
			name = value
		}
	}
	if name == "" {
		return "", errors.New("no path")
	}
	return name, nil
}
