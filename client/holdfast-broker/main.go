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
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"holdfast/agent/harden"
	"holdfast/agent/keys"
	"holdfast/systemd/notify"
)

// drainTime is how long requests in progress may take once we are told to stop.
const drainTime = 5 * time.Second

// reloadTime is how long a reload may wait for the agent.
const reloadTime = 5 * time.Second

// memoryLimit makes the garbage collector work harder before the unit's MemoryMax
// is reached.
const memoryLimit = 128 << 20

// selfCheck is how often the broker makes sure that its socket is still its own.
const selfCheck = 30 * time.Second

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	// Before anything is worth reading.
	if err := harden.Process(); err != nil {
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
	// Signals count from here on: one that comes while we start stops us cleanly.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
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
	if e, ok := keys.AsError(err); ok && e.Hint != "" {
		fmt.Fprintln(w, "holdfast-broker: hint:", e.Hint)
	}
}

// run serves until a signal says to stop.
func (d *daemon) run(signals <-chan os.Signal) error {
	defer d.close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	d.broker.Start(ctx)
	failed := make(chan error, 1)
	go func() {
		if err := d.broker.Serve(ctx, d.socket); err != nil {
			failed <- err
		}
	}()
	go notify.Watchdog(ctx, d.broker.Alive)
	if err := notify.Ready(); err != nil {
		d.log.Warn("service manager", "error", err)
	}
	d.log.Info("ready", "version", fullVersion(), "socket", d.config.socket, "profiles", d.config.profiles)
	check := time.NewTicker(selfCheck)
	defer check.Stop()
	for {
		select {
		case err := <-failed:
			return err
		case <-check.C:
			d.broker.CheckSockets()
		case s := <-signals:
			if s == syscall.SIGHUP {
				d.reload(ctx)
				continue
			}
			return d.shutdown(stop)
		}
	}
}

// reload takes over a new policy and new profiles, or keeps the old ones and says
// why.
func (d *daemon) reload(ctx context.Context) {
	if err := notify.Reloading(); err != nil {
		d.log.Warn("service manager", "error", err)
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTime)
	defer cancel()
	if err := d.broker.Reload(ctx); err != nil {
		d.log.Error("reload: the old policy stays in force", "error", err)
		notify.Status("reload failed: the old policy stays in force")
	} else {
		d.log.Info("reloaded")
		notify.Status("")
	}
	notify.Ready()
}

// shutdown lets requests in progress finish.
func (d *daemon) shutdown(stop context.CancelFunc) error {
	notify.Stopping()
	d.log.Info("stopping")
	stop()
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	return d.broker.Shutdown(ctx)
}
