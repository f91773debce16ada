package logind_test

import (
	"os"
	"slices"
	"testing"

	"github.com/godbus/dbus/v5"

	"holdfast/agent/logind"
	"holdfast/test/desktop"
)

// Any program on the bus can send logind's signals, to all or to the follower alone.
func TestForgedSignals(t *testing.T) {
	bus, l, f := rig(t, logind.Options{System: true}, nil)
	forger := bus.Connect()
	for _, to := range append(everybody(t, forger), "") {
		send(t, forger, to, "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "PrepareForSleep", true)
		send(t, forger, to, desktop.Session("1"), "org.freedesktop.login1.Session", "Lock")
		send(t, forger, to, desktop.Session("1"), "org.freedesktop.DBus.Properties", "PropertiesChanged",
			"org.freedesktop.login1.Session", map[string]dbus.Variant{"LockedHint": dbus.MakeVariant(true)}, []string{})
		// Or make itself logind.
		send(t, forger, to, "/org/freedesktop/DBus", "org.freedesktop.DBus", "NameOwnerChanged", "org.freedesktop.login1", "", forger.Names()[0])
		send(t, forger, to, "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "PrepareForSleep", true)
	}
	answered(t, forger)
	l.Lock("2")
	f.want(bobLocked) // and nothing before it
	if len(l.Inhibitors()) != 1 {
		t.Error("a forged signal cost the inhibitor")
	}
}

// Descriptors that a sender adds to a message are not received: they would fill up the process.
func TestDescriptorsAreRefused(t *testing.T) {
	bus := desktop.StartBus(t)
	l := bus.StartLogind()
	l.AddSession("1", alice)
	forger := bus.Connect()
	others := everybody(t, forger)
	f := follow(t, bus.Address, logind.Options{}, nil)
	f.untilHeld(l, true)
	before := descriptors(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for _, to := range everybody(t, forger) {
		for range 100 {
			if slices.Contains(others, to) {
				break
			}
			send(t, forger, to, desktop.Session("1"), "org.freedesktop.login1.Session", "Lock", dbus.UnixFD(r.Fd()))
		}
	}
	answered(t, forger)
	l.Lock("1")
	f.want(aliceLocked)
	if after := descriptors(t); after > before+10 {
		t.Errorf("%d descriptors are open, %d before", after, before)
	}
}

// Signals of logind that are not as its documentation has them.
func TestMalformedSignals(t *testing.T) {
	_, l, f := rig(t, logind.Options{}, nil)
	const session, manager, properties = "org.freedesktop.login1.Session", "org.freedesktop.login1.Manager", "org.freedesktop.DBus.Properties"
	path := desktop.Session("1")
	l.Emit("/org/freedesktop/login1", manager, "PrepareForSleep", "s", "true")
	l.Emit("/org/freedesktop/login1", manager, "PrepareForSleep", "bb", true, true)
	l.Emit("/org/freedesktop/login1", manager, "PrepareForSleep", "")
	l.Emit("/org/freedesktop/login1", session, "Lock", "")
	l.Emit(path, properties, "PropertiesChanged", "s", session)
	l.Emit(path, properties, "PropertiesChanged", "ssas", session, "LockedHint", []string{})
	l.Emit(path, properties, "PropertiesChanged", "sa{sv}as", session, map[string]dbus.Variant{"LockedHint": dbus.MakeVariant("yes")}, []string{})
	l.Emit(path, properties, "PropertiesChanged", "sa{sv}as", session, map[string]dbus.Variant{"IdleHint": dbus.MakeVariant(true)}, []string{})
	l.Emit(path, properties, "PropertiesChanged", "sa{sv}as", manager, map[string]dbus.Variant{"LockedHint": dbus.MakeVariant(true)}, []string{})
	l.PrepareForSleep(true)
	f.want(sleeps) // and nothing before it
}

// everybody returns the unique names of all connections to the bus but conn.
func everybody(t *testing.T, conn *dbus.Conn) []string {
	t.Helper()
	var names []string
	if err := conn.BusObject().Call("org.freedesktop.DBus.ListNames", 0).Store(&names); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(n string) bool { return n[0] != ':' || n == conn.Names()[0] })
}

// send sends a signal to one on the bus, or to all for "".
func send(t *testing.T, conn *dbus.Conn, to string, path dbus.ObjectPath, iface, name string, body ...any) {
	t.Helper()
	m := &dbus.Message{Type: dbus.TypeSignal, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath: dbus.MakeVariant(path), dbus.FieldInterface: dbus.MakeVariant(iface), dbus.FieldMember: dbus.MakeVariant(name),
	}}
	if to != "" {
		m.Headers[dbus.FieldDestination] = dbus.MakeVariant(to)
	}
	if len(body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	if call := conn.Send(m, nil); call.Err != nil {
		t.Fatal(call.Err)
	}
}

// answered returns when the bus has handled what conn sent before.
func answered(t *testing.T, conn *dbus.Conn) {
	t.Helper()
	if err := conn.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err; err != nil {
		t.Fatal(err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
