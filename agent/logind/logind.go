// Package logind reports when unlocked keys have to be locked again: before the
// machine sleeps, and when a session's screen locks. systemd-logind announces both
// on the system bus (org.freedesktop.login1(5)).
//
// Start at [Follow]. Without a bus or without logind it reports nothing, and
// unlocked keys are locked at their own time. It accepts only signals that logind
// itself sent; the bus's policy decides which process may be logind.
//
// It does not protect against a machine that loses its power, a desktop that locks
// its screen without telling logind, or the root user. It receives nothing while the
// bus or logind restarts, and asks afterwards which sessions are locked.
package logind

import (
	"context"
	"log/slog"
	"os"
	"time"

	"holdfast/internal/bus"
)

// The kinds of events.
const (
	Sleep = "sleep" // the machine is about to sleep
	Lock  = "lock"  // a session was locked
)

// Event is a reason to lock unlocked keys.
type Event struct {
	What string // Sleep or Lock
	UID  uint32 // the user of the locked session, unless All
	All  bool   // it concerns every user: the machine sleeps, or the user of the session is unknown
}

// Options configures [Follow].
type Options struct {
	Log    *slog.Logger // slog's default when nil
	UID    uint32       // the user whose sessions are followed
	System bool         // follow every user's sessions instead
}

// The backoff between attempts to reach the bus. It doubles each time, and starts
// again after a connection.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = time.Minute
)

// Follow calls locked for each event, one at a time, and returns when ctx ends. The
// machine sleeps only when locked has returned, or after logind's own timeout
// (InhibitDelayMaxSec=, 5 s by default), so locked has to be quick. The bus is that
// of [bus.System]. Follow returns at once when its address cannot be used; it logs
// other failures at debug level and retries.
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

// once follows one connection to the bus until the connection ends. there reports
// whether a connection was made.
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

// unknown is the event for a locked session whose user is unknown: the session may
// be a followed one.
func (o Options) unknown() Event {
	if o.System {
		return Event{What: Lock, All: true}
	}
	return Event{What: Lock, UID: o.UID}
}
