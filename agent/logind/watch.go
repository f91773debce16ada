package logind

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/godbus/dbus/v5"
)

// watch is one connection to the bus. One goroutine uses everything but the inbox.
type watch struct {
	options Options
	locked  func(Event)
	conn    *dbus.Conn
	inbox   *inbox
	address string // of the bus

	owner     string   // logind's unique name as of the last handled signal; empty while there is no logind
	inhibitor *os.File // delays the machine's sleep while it is open; nil when none is held
}

func (w *watch) close() {
	w.release()
	w.conn.Close()
}

// follow handles signals until the connection or ctx ends.
func (w *watch) follow(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.inbox.over:
			return errors.New("the connection to the system bus ended")
		case s := <-w.inbox.signals:
			w.handle(ctx, s)
		}
	}
}

// handle handles one signal of logind, or of the bus about logind.
func (w *watch) handle(ctx context.Context, s *dbus.Signal) {
	if name, ok := newOwner(s); ok {
		w.meet(ctx, name)
		return
	}
	switch s.Name {
	case manager + ".PrepareForSleep":
		if about, ok := only[bool](s.Body); ok {
			w.sleep(ctx, about)
		}
	case session + ".Lock":
		w.lock(ctx, s.Path)
	case properties + ".PropertiesChanged":
		if hinted(s.Body) {
			w.lock(ctx, s.Path)
		}
	}
}

// meet starts to follow a logind that has appeared, or drops one that has left.
func (w *watch) meet(ctx context.Context, owner string) {
	w.release()
	w.owner = owner
	if owner == "" {
		w.options.Log.Debug("there is no logind on the system bus now")
		return
	}
	w.inhibit(ctx)
	w.catchUp(ctx)
}

// sleep reports that the machine is about to sleep, then releases the inhibitor, so
// that it may; when the machine has woken up, it takes a new one.
func (w *watch) sleep(ctx context.Context, about bool) {
	if about {
		w.locked(Event{What: Sleep, All: true})
	}
	w.release()
	if !about {
		w.inhibit(ctx)
	}
}

// lock reports that a session was locked.
func (w *watch) lock(ctx context.Context, path dbus.ObjectPath) {
	if !strings.HasPrefix(string(path), string(sessions)+"/") {
		return
	}
	var user struct { // (uo), org.freedesktop.login1.Session's User
		UID  uint32
		Path dbus.ObjectPath
	}
	if err := w.property(ctx, path, "User", &user); err != nil {
		w.options.Log.Debug("the user of the locked session is unknown", "error", err)
		w.locked(w.options.unknown())
		return
	}
	if w.options.wanted(user.UID) {
		w.locked(Event{What: Lock, UID: user.UID})
	}
}

// only returns the one argument of a signal if it is of type T.
func only[T any](body []any) (value T, ok bool) {
	if len(body) != 1 {
		return value, false
	}
	value, ok = body[0].(T)
	return value, ok
}

// hinted reports whether properties of a session changed and LockedHint became
// true: some desktops lock the screen themselves and set only this property.
func hinted(body []any) bool {
	if len(body) != 3 || body[0] != session {
		return false
	}
	changed, _ := body[1].(map[string]dbus.Variant)
	locked, _ := changed["LockedHint"].Value().(bool)
	return locked
}
