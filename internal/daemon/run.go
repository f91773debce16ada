// Package daemon is the frame of our daemons: flags, environment and settings file
// become settings ([Settings]); [Program.Run] answers --version and --explain,
// assembles the daemon, takes over or makes its sockets, and runs it: readiness and
// the watchdog (sd_notify(3)), SIGHUP reloads, SIGTERM drains, and twice a minute it
// checks that the sockets are still the daemon's own.
//
// Start at [Program] and [NewSettings]. A daemon's main package holds the table of
// its settings, and puts its parts together in [Program.Assemble].
//
// The settings file is a YAML mapping, read strictly: unknown and repeated words
// and wrong types are errors with file and line. Its words are the flags, and those
// that have no flag:
//
//	state: /var/lib/holdfast
//	limits:
//	  queue-per-peer: 256
package daemon

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"holdfast/internal/door"
	"holdfast/internal/notify"
)

const (
	reloadTimeout   = 5 * time.Second  // for one reload
	graceTimeout    = 5 * time.Second  // for Grace
	drainTimeout    = 5 * time.Second  // for requests in progress when the daemon stops
	socketsInterval = 30 * time.Second // between two checks of the sockets
)

// Daemon is what a program runs.
type Daemon interface {
	Alive() error                       // for the watchdog: the daemon's own state, and not that of a device or the network
	CheckSockets()                      // makes sure that the sockets are still the daemon's own
	Reload(ctx context.Context) error   // all or nothing
	Shutdown(ctx context.Context) error // lets requests in progress finish until ctx ends
}

// Service is a daemon that is ready to run.
type Service struct {
	Daemon Daemon
	Start  func(context.Context)                                      // runs before readiness; may be nil
	Tasks  []func(context.Context) error                              // run until their context ends; an error ends the daemon
	Accept map[string]func(ctx context.Context, s *door.Socket) error // likewise, for each Unix socket by its name
	Grace  func(context.Context)                                      // waits, before the daemon stops, for what would suffer most; may be nil
	Ready  []any                                                      // what the log says at readiness: keys and values, in turn
	Keeps  string                                                     // what stays in force when a reload fails: "the old policy stays in force"
}

// listenForSignals returns the signals that stop or reload the daemon, from now on.
func listenForSignals() <-chan os.Signal {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	return signals
}

// run reports readiness. It returns when a signal has stopped the daemon and the
// daemon has drained, or when a task has failed. The context of Start and of the
// tasks ends with the signal.
func (s *Service) run(sockets map[string]*door.Socket, signals <-chan os.Signal, log *slog.Logger) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if s.Start != nil {
		s.Start(ctx)
	}
	failed := s.begin(ctx, sockets)
	go notify.Watchdog(ctx, s.Daemon.Alive)
	if err := notify.Ready(); err != nil {
		log.Warn("service manager", "error", err)
	}
	log.Info("ready", s.Ready...)
	check := time.NewTicker(socketsInterval)
	defer check.Stop()
	for {
		select {
		case err := <-failed:
			return err
		case <-check.C:
			s.Daemon.CheckSockets()
		case received := <-signals:
			if received == syscall.SIGHUP {
				s.reload(ctx, log)
				continue
			}
			return s.shutdown(ctx, stop, log)
		}
	}
}

// begin starts the tasks. The channel has the errors of those that fail.
func (s *Service) begin(ctx context.Context, sockets map[string]*door.Socket) <-chan error {
	failed := make(chan error, len(s.Tasks)+len(sockets))
	start := func(task func(context.Context) error) {
		go func() {
			if err := task(ctx); err != nil {
				failed <- err
			}
		}()
	}
	for _, task := range s.Tasks {
		start(task)
	}
	for name, socket := range sockets {
		start(func(ctx context.Context) error { return s.Accept[name](ctx, socket) })
	}
	return failed
}

// reload reloads the daemon. When that fails, the old state stays in force, and reload
// logs the error.
func (s *Service) reload(ctx context.Context, log *slog.Logger) {
	if err := notify.Reloading(); err != nil {
		log.Warn("service manager", "error", err)
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	if err := s.Daemon.Reload(ctx); err != nil {
		log.Error("reload: "+s.Keeps, "error", err)
		notify.Status("reload failed: " + s.Keeps)
	} else {
		log.Info("reloaded")
		notify.Status("")
	}
	notify.Ready()
}

// shutdown waits for Grace, while the daemon serves as before, and lets requests in
// progress finish.
func (s *Service) shutdown(ctx context.Context, stop context.CancelFunc, log *slog.Logger) error {
	notify.Stopping()
	log.Info("stopping")
	if s.Grace != nil {
		grace, cancel := context.WithTimeout(ctx, graceTimeout)
		s.Grace(grace)
		cancel()
	}
	stop()
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	return s.Daemon.Shutdown(ctx)
}
