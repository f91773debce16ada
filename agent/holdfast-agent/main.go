// Command holdfast-agent holds keys in this machine's TPM and on PIV cards, and signs
// for the programs that it has identified and that its policy allows. See
// holdfast-agent(8).
//
// This file and its neighbours only put the parts together: package agent is
// the service, packages tpm and piv the devices.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"holdfast/internal/daemon"
	"holdfast/internal/fault"
	"holdfast/internal/guard"
)

// memoryLimit makes the garbage collector work harder before the unit's MemoryMax
// is reached.
const memoryLimit = 192 << 20

// recovery is how often the agent looks at a device that is not ready.
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
	fs := flag.NewFlagSet("holdfast-agent", flag.ContinueOnError)
	fs.SetOutput(stderr)
	c, done, err := configure(fs, args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp) || done:
		return 0
	case err != nil:
		complain(stderr, err)
		return 2
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	if err := guard.HardenProcess(); err != nil {
		complain(stderr, err)
		return 1
	}
	signals := daemon.Signals()
	d, err := assemble(c, log)
	if err != nil {
		complain(stderr, err)
		return 1
	}
	if err := d.run(signals); err != nil {
		complain(stderr, err)
		return 1
	}
	return 0
}

// complain writes one fact, and the next step when there is one.
func complain(w io.Writer, err error) {
	fmt.Fprintln(w, "holdfast-agent: error:", err)
	if e, ok := fault.AsError(err); ok && e.Hint != "" {
		fmt.Fprintln(w, "holdfast-agent: hint:", e.Hint)
	}
}

// run serves until a signal says to stop.
func (d *service) run(signals <-chan os.Signal) error {
	defer d.close()
	serve := []func(context.Context) error{
		func(ctx context.Context) error { d.agent.WatchDevices(ctx, recovery); return nil },
		d.followPerson,
	}
	for name, s := range d.sockets {
		accept := d.agent.Serve
		if name == adminSocket {
			accept = d.agent.ServeAdmin
		}
		serve = append(serve, func(ctx context.Context) error { return accept(ctx, s) })
	}
	return daemon.Run(daemon.Options{
		Daemon: d.agent, Serve: serve, Signals: signals, Log: d.log, Keeps: "the old policy and keys stay in force",
		Ready: []any{"version", fullVersion(), "socket", d.config.Socket, "device", d.config.Device},
	})
}
