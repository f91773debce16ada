package logind

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/godbus/dbus/v5"
)

// errNotLocal is for a bus that is to be reached over a network, or by running a
// program: the agent does neither.
var errNotLocal = errors.New("the system bus is not at a Unix socket")

// usual is where the system bus listens, D-Bus specification, "Well-known Message
// Bus Instances".
const usual = "unix:path=/var/run/dbus/system_bus_socket"

// busSockets returns where the system bus may be, in the order in which to try.
func busSockets() ([]string, error) {
	address := os.Getenv("DBUS_SYSTEM_BUS_ADDRESS")
	if address == "" {
		address = usual
	}
	return sockets(address)
}

// sockets returns the names of the Unix sockets in a list of server addresses, as
// package net has them (D-Bus specification, "Server Addresses"). One address of
// another kind, and none is used.
func sockets(list string) ([]string, error) {
	var names []string
	for address := range strings.SplitSeq(list, ";") {
		if address == "" {
			continue
		}
		pairs, local := strings.CutPrefix(address, "unix:")
		if !local {
			return nil, errNotLocal
		}
		name, err := socket(pairs)
		if err != nil {
			return nil, fmt.Errorf("the system bus's address: %w", err)
		}
		names = append(names, name)
	}
	if names == nil {
		return nil, errNotLocal
	}
	return names, nil
}

// socket returns the name in the key=value pairs of one address.
func socket(pairs string) (name string, err error) {
	for pair := range strings.SplitSeq(pairs, ",") {
		key, escaped, _ := strings.Cut(pair, "=")
		if key != "path" && key != "abstract" {
			continue // guid, or what a later specification adds
		}
		value, err := dbus.UnescapeBusAddressValue(escaped)
		if err != nil {
			return "", err
		}
		if name != "" || value == "" || strings.ContainsRune(value, 0) {
			return "", errors.New("one path is wanted")
		}
		switch {
		case key == "abstract":
			name = "@" + value
		case value[0] != '/': // package net takes a leading @ for an abstract name
			return "", errors.New("an absolute path is wanted")
		default:
			name = value
		}
	}
	if name == "" {
		return "", errors.New("there is no path in it")
	}
	return name, nil
}
