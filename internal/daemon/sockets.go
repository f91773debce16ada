package daemon

import (
	"fmt"
	"io/fs"
	"net"

	"holdfast/internal/door"
	"holdfast/internal/guard"
	"holdfast/internal/notify"
)

// setModes sets the modes of Unix sockets that have none. Every user may connect
// to the machine's daemon: its policy decides about callers.
func setModes(wanted []notify.Socket, system bool) {
	mode := fs.FileMode(0o600)
	if system {
		mode = 0o666
	}
	for i := range wanted {
		if !wanted[i].Loopback && wanted[i].Mode == 0 {
			wanted[i].Mode = mode
		}
	}
}

// openSockets returns the Unix sockets by their names: those that systemd passed,
// and new ones.
func openSockets(wanted []notify.Socket, parts *Parts, system bool) (map[string]*door.Socket, error) {
	sockets := map[string]*door.Socket{}
	for _, w := range wanted {
		if w.Loopback {
			continue
		}
		if l, ok := parts.Passed[w.Name].(*net.UnixListener); ok {
			sockets[w.Name] = door.Activated(l)
			continue
		}
		s, err := listen(w, system)
		if err != nil {
			return nil, err
		}
		parts.Own(s)
		sockets[w.Name] = s
	}
	return sockets, nil
}

// listen makes a socket in a directory that no other user can put one into.
func listen(w notify.Socket, system bool) (*door.Socket, error) {
	if err := guard.CheckSocketDirectory(w.Path, system); err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	return door.Listen(w.Path, w.Mode)
}
