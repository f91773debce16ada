package desktop

import (
	"github.com/godbus/dbus/v5"
)

// The names of logind, org.freedesktop.login1(5).
const (
	login1     = "org.freedesktop.login1"
	login1Path = dbus.ObjectPath("/org/freedesktop/login1")
	mock       = "org.freedesktop.DBus.Mock"
)

// A Logind is dbusmock's logind on a bus.
type Logind struct {
	bus    *Bus
	conn   *dbus.Conn
	daemon *process
}

// StartLogind starts a logind without sessions.
func (b *Bus) StartLogind() *Logind {
	b.tb.Helper()
	l := &Logind{bus: b, conn: b.Connect()}
	// Debian's own, by its full path: another python3 may come first.
	l.daemon = start(b.tb, b.environ(), "", "/usr/bin/python3", "-m", "dbusmock", "--system", "--template", "logind")
	l.daemon.wait("logind", func() error { return owned(l.conn, login1) })
	return l
}

// Stop ends logind; another one can be started.
func (l *Logind) Stop() {
	l.daemon.kill()
	for owned(l.conn, login1) == nil { // until the bus has noticed
	}
}

func (l *Logind) call(path dbus.ObjectPath, method string, args ...any) {
	l.bus.tb.Helper()
	if err := l.conn.Object(login1, path).Call(method, 0, args...).Err; err != nil {
		l.bus.tb.Fatalf("%s: %v", method, err)
	}
}

// AddSession adds a session of a user.
func (l *Logind) AddSession(id string, uid uint32) {
	l.bus.tb.Helper()
	l.call(login1Path, mock+".AddSession", id, "seat0", uid, "user", true)
}

// AddNamelessSession adds an object that is no session, though its path says so,
// and returns it.
func (l *Logind) AddNamelessSession(id string) dbus.ObjectPath {
	l.bus.tb.Helper()
	type method struct{ Name, In, Out, Code string }
	l.call(login1Path, mock+".AddObject", Session(id), "org.example", map[string]dbus.Variant{}, []method{})
	return Session(id)
}

// Session returns the object of a session.
func Session(id string) dbus.ObjectPath { return login1Path + "/session/" + dbus.ObjectPath(id) }

// Lock has logind ask a session to lock, as loginctl lock-session does.
func (l *Logind) Lock(id string) {
	l.bus.tb.Helper()
	l.call(Session(id), login1+".Session.Lock")
}

// SetLockedHint is how a desktop says that a session is locked, or no longer.
func (l *Logind) SetLockedHint(id string, locked bool) {
	l.bus.tb.Helper()
	l.call(Session(id), login1+".Session.SetLockedHint", locked)
}

// PrepareForSleep announces that the machine is about to sleep, or awake.
func (l *Logind) PrepareForSleep(about bool) {
	l.bus.tb.Helper()
	l.Emit(login1Path, login1+".Manager", "PrepareForSleep", "b", about)
}

// Emit has logind send any signal.
func (l *Logind) Emit(path dbus.ObjectPath, iface, name, signature string, body ...any) {
	l.bus.tb.Helper()
	variants := make([]dbus.Variant, len(body))
	for i, v := range body {
		variants[i] = dbus.MakeVariant(v)
	}
	l.call(path, mock+".EmitSignal", iface, name, signature, variants)
}

// An Inhibitor is a lock that a client holds, as ListInhibitors reports it.
type Inhibitor struct {
	What, Who, Why, Mode string
	UID, PID             uint32
}

// Inhibitors returns the locks that are held now.
func (l *Logind) Inhibitors() []Inhibitor {
	l.bus.tb.Helper()
	var list []Inhibitor
	if err := l.conn.Object(login1, login1Path).Call(login1+".Manager.ListInhibitors", 0).Store(&list); err != nil {
		l.bus.tb.Fatalf("ListInhibitors: %v", err)
	}
	return list
}
