// Package notify talks with systemd, or with another service manager that has the same
// protocols, on behalf of a daemon: it takes over the sockets that systemd listens on
// (sd_listen_fds(3)), and reports the daemon's state (sd_notify(3)).
//
// Start at [Listeners] for the sockets, at [Ready] for the state. Without a service
// manager the functions do nothing and succeed, so a daemon can always call them.
//
// The package trusts the environment: the process that starts the daemon decides
// about its sockets anyway. It checks that they are the sockets that the daemon
// wants.
package notify

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Ready reports that the daemon serves, at its start and after a reload.
func Ready() error { return send(daemon.SdNotifyReady) }

// Reloading reports that the daemon reads its configuration again; [Ready] reports
// the end. The message has the time, which Type=notify-reload needs to tell one
// reload from the next.
func Reloading() error {
	return send(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// Stopping reports that the daemon ends.
func Stopping() error { return send(daemon.SdNotifyStopping) }

// Status sets the line that `systemctl status` shows. An empty one removes it.
func Status(text string) error {
	// A second line would be another message.
	return send("STATUS=" + strings.Join(strings.FieldsFunc(text, isControl), " "))
}

func isControl(r rune) bool { return r < ' ' }

// Watchdog tells the service manager that the daemon is alive, at half the
// interval of WatchdogSec=, until ctx ends. Each time it calls alive first, and sends
// nothing while alive returns an error or does not return; the error becomes the
// status line. Without a watchdog it returns at once.
func Watchdog(ctx context.Context, alive func() error) error {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("watchdog: %w", err)
	}
	if interval == 0 {
		return nil
	}
	tick := time.NewTicker(max(interval/2, time.Microsecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			ping(alive)
		}
	}
}

// ping ignores an error in sending: the next message may arrive, and if none does,
// the service manager notices by itself.
func ping(alive func() error) {
	if err := alive(); err != nil {
		Status("watchdog: " + err.Error())
		return
	}
	send(daemon.SdNotifyWatchdog)
}

func send(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}
