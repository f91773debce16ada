package client

import "holdfast/internal/dial"

// Sockets returns the paths at which an agent is looked for, in order: the one
// in $HOLDFAST_SOCKET and no other when it is set; else agent.sock in
// $XDG_RUNTIME_DIR/holdfast, or in /run/user/UID/holdfast where that is not
// set, then in /run/holdfast.
func Sockets() []string { return dial.Agent().Paths() }

// An UnreachableError says that there is no agent to ask: none listens, its
// socket is not safe to use, or the connection was lost. Everything that an
// agent itself answers is a [*keys.Error].
type UnreachableError = dial.UnreachableError
