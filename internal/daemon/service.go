// Package daemon is the life of a daemon between ready and gone, the same for
// all of ours: readiness and the watchdog (sd_notify(3)), SIGHUP reloads, SIGTERM
// drains, and now and then the sockets are looked after.
//
// Start at [Run].
package daemon

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"holdfast/internal/notify"
)

// How long a reload may take, and requests in progress once the daemon is told to
// stop; and how often its sockets are looked after.
const (
	reloadTime = 5 * time.Second
	drainTime  = 5 * time.Second
	selfCheck  = 30 * time.Second
)

// Daemon is what is run.
type Daemon interface {
	Alive() error                       // for the watchdog: the daemon's own state, and no device's or network's
	CheckSockets()                      // makes sure that the sockets are still its own
	Reload(ctx context.Context) error   // all or nothing
	Shutdown(ctx context.Context) error // lets requests in progress finish until ctx ends
}

// Signals returns the signals that [Run] listens to. They count from here on: call
// it before a start that takes time, so that one that comes meanwhile stops the
// daemon cleanly.
func Signals() <-chan os.Signal {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	return signals
}

// Options is what [Run] needs.
type Options struct {
	Daemon  Daemon
	Start   func(context.Context)         // what comes before readiness; may be nil. The context ends when the daemon is told to stop
	Serve   []func(context.Context) error // each runs until its context ends, or fails and ends the daemon
	Signals <-chan os.Signal
	Log     *slog.Logger
	Ready   []any  // what the log says when the daemon is ready: keys and values, in turn
	Keeps   string // what stays in force when a reload fails: "the old policy stays in force"
}

// Run says that the daemon is ready, and returns when it has been told to stop and
// has drained, or when one of Serve has failed.
func Run(o Options) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if o.Start != nil {
		o.Start(ctx)
	}
	failed := make(chan error, len(o.Serve))
	for _, serve := range o.Serve {
		go func() {
			if err := serve(ctx); err != nil {
				failed <- err
			}
		}()
	}
	go notify.Watchdog(ctx, o.Daemon.Alive)
	if err := notify.Ready(); err != nil {
		o.Log.Warn("service manager", "error", err)
	}
	o.Log.Info("ready", o.Ready...)
	check := time.NewTicker(selfCheck)
	defer check.Stop()
	for {
		select {
		case err := <-failed:
			return err
		case <-check.C:
			o.Daemon.CheckSockets()
		case s := <-o.Signals:
			if s == syscall.SIGHUP {
				o.reload(ctx)
				continue
			}
			return o.shutdown(stop)
		}
	}
}

// reload takes over what is new, or keeps the old and says why.
func (o *Options) reload(ctx context.Context) {
	if err := notify.Reloading(); err != nil {
		o.Log.Warn("service manager", "error", err)
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTime)
	defer cancel()
	if err := o.Daemon.Reload(ctx); err != nil {
		o.Log.Error("reload: "+o.Keeps, "error", err)
		notify.Status("reload failed: " + o.Keeps)
	} else {
		o.Log.Info("reloaded")
		notify.Status("")
	}
	notify.Ready()
}

// shutdown lets requests in progress finish.
func (o *Options) shutdown(stop context.CancelFunc) error {
	notify.Stopping()
	o.Log.Info("stopping")
	stop()
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	return o.Daemon.Shutdown(ctx)
}
