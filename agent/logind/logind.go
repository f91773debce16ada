// Package logind tells when what a person unlocked has to be locked again: before
// the machine sleeps, and when a session's screen locks. systemd-logind says so on
// the system bus (org.freedesktop.login1(5)).
//
// Start at [Follow]. It needs no bus: where there is none, or no logind, nothing
// is ever said, and what was unlocked ends at its own time. Of the bus it believes
// only what logind itself sent; who may be logind there, the bus's policy says.
//
// What it does not protect against: a machine that loses its power, a desktop that
// locks its screen without telling logind, and the root user. While the bus or
// logind is being restarted nothing is heard; which sessions are locked is asked
// afterwards.
package logind

import (
	"context"
	"log/slog"
	"os"
	"time"

	"holdfast/internal/bus"
)

// What can happen.
const (
	Sleep = "sleep" // the machine is about to sleep
	Lock  = "lock"  // a session was locked
)

// Event is a reason to lock what was unlocked.
type Event struct {
	What string // Sleep or Lock
	UID  uint32 // whose session was locked, unless All
	All  bool   // it concerns everybody: the machine sleeps, or logind does not say whose session it was
}

// Options is what Follow needs.
type Options struct {
	Log    *slog.Logger // slog's default when nil
	UID    uint32       // whose sessions to follow
	System bool         // follow everybody's instead
}

// How long to wait before the bus is tried again: longer each time, and as short
// as at first once it has been there.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = time.Minute
)

// Follow calls locked for each event, one at a time, until ctx is over; it then
// returns. The machine sleeps only when locked has returned, or when logind has
// waited long enough (InhibitDelayMaxSec=, 5 s by default), so locked has to be
// quick. The bus is the one that DBUS_SYSTEM_BUS_ADDRESS names, else the usual one; an
// address that is not a Unix socket's is refused, and Follow returns at once. Other
// faults are logged at debug level, and what failed is tried again.
func Follow(ctx context.Context, o Options, locked func(Event)) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	address := bus.System(os.Getenv)
	if _, err := bus.Sockets(address); err != nil {
		o.Log.Warn("sleep and screen locks are not followed", "error", err)
		return
	}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		there, err := o.once(ctx, address, locked)
		if ctx.Err() != nil {
			return
		}
		if there {
			pause = firstPause
		}
		o.Log.Debug("sleep and screen locks are not followed now", "error", err, "again", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// once follows one connection to the bus to its end. there is set when there was
// one.
func (o Options) once(ctx context.Context, address string, locked func(Event)) (there bool, err error) {
	w, err := connect(ctx, address)
	if err != nil {
		return false, err
	}
	w.options, w.locked = o, locked
	defer w.close()
	return true, w.follow(ctx)
}

// wanted reports whether a user's sessions are followed.
func (o Options) wanted(uid uint32) bool { return o.System || uid == o.UID }

// unknown is the event for a session that logind does not say the owner of: it
// may be one that is followed.
func (o Options) unknown() Event {
	if o.System {
		return Event{What: Lock, All: true}
	}
	return Event{What: Lock, UID: o.UID}
}
