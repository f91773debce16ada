// Command holdfast-broker gives stock Kubernetes clients credentials that the
// holdfast agent's keys back, and serves the loopback proxy that signs in for them.
// See holdfast-broker(8).
//
// This file and its neighbours only put the parts together: package broker is the
// service.
package main

import (
	"io"
	"os"
	"runtime/debug"

	"holdfast/internal/daemon"
	"holdfast/internal/notify"
)

// version is set by the build: -ldflags "-X main.version=v0.1.0".
var version string

// memoryLimit makes the garbage collector work harder before the unit's MemoryMax
// is reached.
const memoryLimit = 128 << 20

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	debug.SetMemoryLimit(memoryLimit)
	c := newConfig()
	p := daemon.Program{
		Name: "holdfast-broker", Version: version, Settings: c.Settings, Level: &c.level,
		Example:  "holdfast-broker --listen 127.0.0.1:16443",
		Sockets:  func() []notify.Socket { return sockets(c) },
		Assemble: func(parts *daemon.Parts) (*daemon.Service, error) { return assemble(c, parts) },
	}
	return p.Run(args, stdout, stderr)
}
