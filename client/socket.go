package client

import "holdfast/internal/dial"

// Sockets returns the paths at which an agent is looked for, in order. When
// $HOLDFAST_SOCKET is set, it is the only one. Otherwise they are agent.sock in
// $XDG_RUNTIME_DIR/holdfast, or in /run/user/UID/holdfast where that is not set,
// and then in /run/holdfast.
func Sockets() []string { return dial.Agent().Paths() }
