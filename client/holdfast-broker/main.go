// Command holdfast-broker gives stock Kubernetes clients the credentials that the
// holdfast agent's keys stand behind, and serves the loopback proxy that signs in
// for them. See holdfast-broker(8).
//
// This file and its neighbours only put the parts together: package broker is the
// service.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"holdfast/internal/daemon"
	"holdfast/internal/fault"
	"holdfast/internal/guard"
)

// memoryLimit makes the garbage collector work harder before the unit's MemoryMax
// is reached.
const memoryLimit = 128 << 20

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	// Before anything is worth reading.
	if err := guard.HardenProcess(); err != nil {
		complain(stderr, err)
		return 1
	}
	debug.SetMemoryLimit(memoryLimit)
	fs := flag.NewFlagSet("holdfast-broker", flag.ContinueOnError)
	fs.SetOutput(stderr)
	c, done, err := configure(fs, args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp) || done:
		return 0
	case err != nil:
		complain(stderr, err)
		return 2
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: c.level}))
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

// configure reads the command line and what it leads to. done is set when the
// command line asked for nothing but an answer.
func configure(fs *flag.FlagSet, args []string, stdout io.Writer) (c *config, done bool, err error) {
	given := flags(fs)
	showVersion := fs.Bool("version", false, "print the version and exit")
	explain := fs.Bool("explain", false, "print the configuration and where each value comes from, and exit")
	if err := fs.Parse(args); err != nil {
		return nil, false, err
	}
	if fs.NArg() > 0 {
		return nil, false, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if *showVersion {
		_, err := fmt.Fprintln(stdout, "holdfast-broker", fullVersion())
		return nil, true, err
	}
	if c, err = resolve(given, os.Getenv); err != nil {
		return nil, false, err
	}
	if *explain {
		return c, true, c.explain(stdout)
	}
	return c, false, nil
}

// complain writes one fact, and the next step when there is one.
func complain(w io.Writer, err error) {
	fmt.Fprintln(w, "holdfast-broker: error:", err)
	if e, ok := fault.AsError(err); ok && e.Hint != "" {
		fmt.Fprintln(w, "holdfast-broker: hint:", e.Hint)
	}
}

// run serves until a signal says to stop.
func (d *service) run(signals <-chan os.Signal) error {
	defer d.close()
	return daemon.Run(daemon.Options{
		Daemon: d.broker, Signals: signals, Log: d.log, Keeps: "the old policy stays in force",
		Start: d.broker.Start,
		Serve: []func(context.Context) error{func(ctx context.Context) error { return d.broker.Serve(ctx, d.socket) }},
		Ready: []any{"version", fullVersion(), "socket", d.config.socket, "profiles", d.config.profiles},
	})
}
