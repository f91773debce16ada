package logind_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/agent/logind"
	"holdfast/test/desktop"
)

const (
	alice = 4711
	bob   = 4712
)

// testTimeout is how long anything that has to happen may take.
const testTimeout = 20 * time.Second

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
	case <-time.After(testTimeout):
		f.t.Fatalf("no event, want %+v\n%s", want, f.log)
	}
}

// until waits for something that is not an event.
func (f *follower) until(what string, is func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(testTimeout); !is(); {
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
	f.want(sleeps) // and no event in between
}

func TestSystemFollowsEveryUser(t *testing.T) {
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

// A session that was locked before the connection is reported.
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
	f.want(sleeps) // and no event in between
}
