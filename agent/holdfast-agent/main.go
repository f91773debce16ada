// Command holdfast-agent holds keys in this machine's TPM and signs for the
// programs that it has identified and that its policy allows. See
// holdfast-agent(8).
//
// This file and its neighbours only put the parts together: package agent is
// the service, package tpm the device.
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
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"holdfast/agent/harden"
	"holdfast/agent/keys"
	"holdfast/systemd/notify"
)

// drainTime is how long requests in progress may take once we are told to stop.
const drainTime = 5 * time.Second

// memoryLimit makes the garbage collector work harder before the unit's MemoryMax
// is reached.
const memoryLimit = 192 << 20

// selfCheck is how often the agent makes sure that its sockets are still its
// own, and recovery how often it looks at a device that is not ready.
const (
	selfCheck = 30 * time.Second
	recovery  = 2 * time.Second
)

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
	if err := harden.Process(); err != nil {
		complain(stderr, err)
		return 1
	}
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

// complain writes one fact, and the next step when there is one.
func complain(w io.Writer, err error) {
	fmt.Fprintln(w, "holdfast-agent: error:", err)
	if e, ok := keys.AsError(err); ok && e.Hint != "" {
		fmt.Fprintln(w, "holdfast-agent: hint:", e.Hint)
	}
}

// run serves until a signal says to stop.
func (d *daemon) run(signals <-chan os.Signal) error {
	defer d.close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	failed := make(chan error, len(d.sockets))
	for name, s := range d.sockets {
		serve := d.agent.Serve
		if name == adminSocket {
			serve = d.agent.ServeAdmin
		}
		go func() {
			if err := serve(ctx, s); err != nil {
				failed <- err
			}
		}()
	}
	go d.agent.WatchDevices(ctx, recovery)
	go notify.Watchdog(ctx, d.agent.Alive)
	if err := notify.Ready(); err != nil {
		d.log.Warn("service manager", "error", err)
	}
	d.log.Info("ready", "version", fullVersion(), "socket", d.config.Socket, "device", d.config.Device)
	check := time.NewTicker(selfCheck)
	defer check.Stop()
	for {
		select {
		case err := <-failed:
			return err
		case <-check.C:
			d.agent.CheckSockets()
		case s := <-signals:
			if s == syscall.SIGHUP {
				d.reload()
				continue
			}
			return d.shutdown(stop)
		}
	}
}

// reload takes over a new policy and new key records, or keeps the old ones and
// says why.
func (d *daemon) reload() {
	if err := notify.Reloading(); err != nil {
		d.log.Warn("service manager", "error", err)
	}
	if err := d.agent.Reload(); err != nil {
		d.log.Error("reload: the old policy and keys stay in force", "error", err)
		notify.Status("reload failed: the old policy and keys stay in force")
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
	return d.agent.Shutdown(ctx)
}
