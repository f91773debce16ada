package logind_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"go.uber.org/goleak"

	"holdfast/agent/logind"
	"holdfast/test/desktop"
)

const (
	alice = 4711
	bob   = 4712
)

// patience is how long anything that has to happen may take.
const patience = 20 * time.Second

// log keeps what was logged.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(data)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// follower is a Follow that runs, for alice unless it is told otherwise.
type follower struct {
	t      *testing.T
	events chan logind.Event
	log    *log
	done   chan struct{}
	stop   func()
}

func follow(t *testing.T, address string, o logind.Options, also func(logind.Event)) *follower {
	t.Helper()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", address)
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{t: t, events: make(chan logind.Event, 1000), log: &log{}, done: make(chan struct{})}
	o.UID, o.Log = alice, slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	go func() {
		defer close(f.done)
		logind.Follow(ctx, o, func(e logind.Event) {
			if also != nil {
				also(e)
			}
			f.events <- e
		})
	}()
	f.stop = func() { cancel(); <-f.done }
	t.Cleanup(f.stop)
	return f
}

// want waits for one event.
func (f *follower) want(want logind.Event) {
	f.t.Helper()
	select {
	case got := <-f.events:
		if got != want {
			f.t.Fatalf("got %+v, want %+v\n%s", got, want, f.log)
		}
	case <-time.After(patience):
		f.t.Fatalf("no event, want %+v\n%s", want, f.log)
	}
}

// until waits for something that is not an event.
func (f *follower) until(what string, is func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(patience); !is(); {
		if time.Now().After(deadline) {
			f.t.Fatalf("never: %s\n%s", what, f.log)
		}
		time.Sleep(time.Millisecond)
	}
}

func (f *follower) untilHeld(l *desktop.Logind, held bool) {
	f.t.Helper()
	f.until("the inhibitor is held or not", func() bool { return (len(l.Inhibitors()) == 1) == held })
}

// rig is a bus with logind, a session of each of two users, and a follower that
// hears them.
func rig(t *testing.T, o logind.Options, also func(logind.Event)) (*desktop.Bus, *desktop.Logind, *follower) {
	t.Helper()
	bus := desktop.StartBus(t)
	l := bus.StartLogind()
	l.AddSession("1", alice)
	l.AddSession("2", bob)
	f := follow(t, bus.Address, o, also)
	f.untilHeld(l, true)
	return bus, l, f
}

var (
	sleeps      = logind.Event{What: logind.Sleep, All: true}
	aliceLocked = logind.Event{What: logind.Lock, UID: alice}
	bobLocked   = logind.Event{What: logind.Lock, UID: bob}
)

// The machine waits with sleeping until the callback has returned.
func TestSleep(t *testing.T) {
	release := make(chan struct{})
	called := make(chan struct{})
	_, l, f := rig(t, logind.Options{}, func(e logind.Event) {
		if e == sleeps {
			called <- struct{}{}
			<-release
		}
	})
	want := desktop.Inhibitor{What: "sleep", Who: "holdfast", Mode: "delay"}
	got := l.Inhibitors()[0]
	if got.Why == "" {
		t.Error("the inhibitor gives no reason")
	}
	if got.Why, got.UID, got.PID = "", 0, 0; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for range 3 {
		l.PrepareForSleep(true)
		<-called
		if len(l.Inhibitors()) != 1 {
			t.Error("the machine may sleep before the callback has returned")
		}
		release <- struct{}{}
		f.want(sleeps)
		f.untilHeld(l, false)
		l.PrepareForSleep(false)
		f.untilHeld(l, true)
	}
	f.stop()
	f.untilHeld(l, false)
}

func TestLock(t *testing.T) {
	_, l, f := rig(t, logind.Options{}, nil)
	l.Lock("1")
	f.want(aliceLocked)
	l.Lock("2") // somebody else's
	l.SetLockedHint("2", true)
	l.SetLockedHint("1", true)
	f.want(aliceLocked)
	l.SetLockedHint("1", false)
	l.Lock("1")
	f.want(aliceLocked)
	l.PrepareForSleep(true)
	f.want(sleeps) // and nothing in between
}

func TestSystemFollowsEverybody(t *testing.T) {
	_, l, f := rig(t, logind.Options{System: true}, nil)
	l.Lock("2")
	f.want(bobLocked)
	l.Lock("1")
	f.want(aliceLocked)
}

// A session of which logind cannot say whose it is may be one that is followed.
func TestSessionWithoutOwner(t *testing.T) {
	bus, l, f := rig(t, logind.Options{}, nil)
	gone := l.AddNamelessSession("9")
	l.Emit(gone, "org.freedesktop.login1.Session", "Lock", "")
	f.want(aliceLocked)
	f.stop()
	f = follow(t, bus.Address, logind.Options{System: true}, nil)
	f.untilHeld(l, true)
	l.Emit(gone, "org.freedesktop.login1.Session", "Lock", "")
	f.want(logind.Event{What: logind.Lock, All: true})
}

// Whoever is on the bus can send logind's signals, to everybody or to the follower alone.
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

// Descriptors that somebody sends along are not taken: they would fill up the process.
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

// Logind may come after the follower, go, and come again.
func TestLogindRestarts(t *testing.T) {
	bus := desktop.StartBus(t)
	f := follow(t, bus.Address, logind.Options{}, nil)
	for range 2 {
		l := bus.StartLogind()
		f.untilHeld(l, true)
		l.AddSession("1", alice)
		l.Lock("1")
		f.want(aliceLocked)
		l.Stop()
		f.until("it is said that logind is gone", func() bool { return strings.Contains(f.log.String(), "there is no logind") })
	}
}

// What was locked while nobody listened is not missed.
func TestLockedAlready(t *testing.T) {
	bus := desktop.StartBus(t)
	l := bus.StartLogind()
	l.AddSession("1", alice)
	l.AddSession("2", bob)
	l.AddSession("3", alice)
	l.SetLockedHint("2", true)
	l.SetLockedHint("3", true)
	f := follow(t, bus.Address, logind.Options{}, nil)
	f.want(aliceLocked)
	l.PrepareForSleep(true)
	f.want(sleeps) // and nothing in between
}

// The bus may come after the follower, go, and come again.
func TestBusRestarts(t *testing.T) {
	bus := desktop.StartBus(t)
	bus.Stop()
	f := follow(t, bus.Address, logind.Options{}, nil)
	f.until("it is tried again", func() bool { return strings.Count(f.log.String(), "again=") > 1 })
	for range 2 {
		bus.Restart()
		l := bus.StartLogind()
		f.untilHeld(l, true)
		l.AddSession("1", alice)
		l.AddSession("2", bob)
		l.Lock("1")
		f.want(aliceLocked)
		bus.Stop()
	}
	if strings.Contains(f.log.String(), "level=WARN") {
		t.Errorf("a bus that is not there is nothing to warn of:\n%s", f.log)
	}
}

// A bus that takes connections and says nothing keeps nobody from ending.
func TestSilentBus(t *testing.T) {
	bus := desktop.StartBus(t)
	f := follow(t, bus.Address, logind.Options{}, nil)
	l := bus.StartLogind()
	f.untilHeld(l, true)
	bus.Signal(syscall.SIGSTOP)
	f.stop()
	f = follow(t, bus.Address, logind.Options{}, nil)
	f.stop()
	bus.Signal(syscall.SIGCONT)
	f.untilHeld(l, false)
}

// A bus that never says anything is given up on, and tried again.
func TestBusThatNeverAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bus")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	f := follow(t, "unix:path="+path, logind.Options{}, nil)
	for range 2 {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	f.until("it is said", func() bool { return strings.Contains(f.log.String(), "authenticate to the system bus") })
	f.stop()
	l.Close()
}

// Only a Unix socket is a bus for the agent.
func TestBusElsewhere(t *testing.T) {
	for _, address := range []string{"tcp:host=127.0.0.1,port=1", "unixexec:path=/bin/true", "unix:path=/nowhere;tcp:host=localhost,port=1", "autolaunch:", "nonsense", ";"} {
		f := follow(t, address, logind.Options{}, nil)
		select {
		case <-f.done:
		case <-time.After(patience):
			t.Fatalf("%s: still trying\n%s", address, f.log)
		}
		if !strings.Contains(f.log.String(), "not at a Unix socket") {
			t.Errorf("%s: %s", address, f.log)
		}
	}
}

// everybody returns the unique names of all on the bus but conn.
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
