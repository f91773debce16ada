package logind

import (
	"context"
	"os"

	"github.com/godbus/dbus/v5"
)

// call calls a method of the logind whose signals are being handled.
func (w *watch) call(ctx context.Context, path dbus.ObjectPath, result any, method string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return w.conn.Object(w.owner, path).CallWithContext(ctx, method, 0, args...).Store(result)
}

func (w *watch) property(ctx context.Context, path dbus.ObjectPath, name string, result any) error {
	var v dbus.Variant
	if err := w.call(ctx, path, &v, properties+".Get", session, name); err != nil {
		return err
	}
	return dbus.Store([]any{v.Value()}, result)
}

// inhibit makes logind delay the next sleep until release. Without it, PINs may stay
// in memory while the machine sleeps, and are cleared when it wakes up.
func (w *watch) inhibit(ctx context.Context) {
	fd, err := takeInhibitor(ctx, w.address)
	if err != nil {
		w.options.Log.Debug("sleep cannot be delayed", "error", err)
		return
	}
	w.inhibitor = os.NewFile(uintptr(fd), "inhibitor")
}

func (w *watch) release() {
	if w.inhibitor != nil {
		w.inhibitor.Close() // nothing was written to it
		w.inhibitor = nil
	}
}

// catchUp reports the sessions that are locked already: they may have been locked
// while there was no connection.
func (w *watch) catchUp(ctx context.Context) {
	var list []struct { // a(susso)
		ID   string
		UID  uint32
		Name string
		Seat string
		Path dbus.ObjectPath
	}
	if err := w.call(ctx, root, &list, manager+".ListSessions"); err != nil {
		w.options.Log.Debug("the sessions cannot be listed", "error", err)
		return
	}
	for _, s := range list {
		if !w.options.wanted(s.UID) {
			continue
		}
		var locked bool
		if err := w.property(ctx, s.Path, "LockedHint", &locked); err == nil && locked {
			w.locked(Event{What: Lock, UID: s.UID})
		}
	}
}
