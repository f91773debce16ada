// Command holdfast-agent holds keys in this machine's TPM and on PIV cards, and signs
// for the programs that it has identified and that its policy allows. See
// holdfast-agent(8).
//
// This file and its neighbours only put the parts together: package agent is
// the service, packages tpm and piv the devices.
package main

import (
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"holdfast/agent/config"
	"holdfast/internal/daemon"
	"holdfast/internal/notify"
)

// version is set by the build: -ldflags "-X main.version=v0.1.0".
var version string

// memoryLimit makes the garbage collector work harder before the unit's MemoryMax
// is reached.
const memoryLimit = 192 << 20

// recovery is the interval at which the agent looks at a device that is not ready.
const recovery = 2 * time.Second

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	// One processor is plenty: a signature takes a tenth of a millisecond of it, and
	// any device is slower. Goroutines then hand over to each other without waking
	// other threads, which costs more than the work itself, and a flood of requests
	// cannot take more than one core.
	runtime.GOMAXPROCS(1)
	debug.SetMemoryLimit(memoryLimit)
	c := config.New()
	p := daemon.Program{
		Name: "holdfast-agent", Version: version, Includes: "backends: tpm piv", Settings: c.Settings,
		Example:  "holdfast-agent --device tpm:/dev/tpmrm0 --socket $XDG_RUNTIME_DIR/holdfast/agent.sock",
		Sockets:  func() []notify.Socket { return sockets(c) },
		Assemble: func(parts *daemon.Parts) (*daemon.Service, error) { return assemble(c, parts) },
	}
	return p.Run(args, stdout, stderr)
}
