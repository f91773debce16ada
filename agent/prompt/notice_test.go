package prompt

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"holdfast/test/desktop"
	"holdfast/test/pace"
)

// on returns a Prompter of an agent in the session of this bus.
func on(bus *desktop.Bus) *Prompter {
	p := New(Options{Mode: Auto})
	p.getenv = variables{"DISPLAY": ":7", "DBUS_SESSION_BUS_ADDRESS": bus.Address}.get
	return p
}

// connections returns how many are on the bus, this one included.
func connections(t *testing.T, conn *dbus.Conn) int {
	t.Helper()
	var names []string
	if err := conn.BusObject().Call("org.freedesktop.DBus.ListNames", 0).Store(&names); err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, name := range names {
		if strings.HasPrefix(name, ":") {
			count++
		}
	}
	return count
}

// TestTouch sees a notice come after the delay and go when the touch has come.
func TestTouch(t *testing.T) {
	bus := desktop.StartBus(t)
	service := notifying(t, bus)
	before := connections(t, service.conn)
	s := daemon(t)
	s.Key, s.Device, s.Destination = `a"<b>&amp;%n`, "card <i>7</i>", "https://api.prod"
	began := time.Now()
	done := on(bus).Touch(s)
	if took := time.Since(began); pace.Over(t, took, 100*time.Millisecond) {
		t.Errorf("it took %v to return", took)
	}
	service.next("GetServerInformation")
	notice := service.next("Notify")
	if after := notice.when.Sub(began); after < TouchDelay {
		t.Errorf("raised after %v", after)
	}
	if notice.args[0] != "holdfast" || notice.args[3] != `Touch "card ?i?7?/i?"` {
		t.Errorf("raised as %q", notice.args)
	}
	body, _ := notice.args[4].(string)
	for _, want := range []string{`touch for key: "a??b??amp;?n"`, `to: "https://api.prod"`, fmt.Sprintf(`asked by: "caller" (%d)`, s.PID)} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
	if strings.ContainsAny(body, "<>&") {
		t.Errorf("markup in\n%s", body)
	}
	hints, _ := notice.args[6].(map[string]dbus.Variant)
	if hints["urgency"].Value() != byte(2) || hints["resident"].Value() != true {
		t.Errorf("hints %v", hints)
	}
	done()
	done()
	if closed := service.next("CloseNotification"); fmt.Sprint(closed.args[0]) != "1" {
		t.Errorf("closed %v", closed.args)
	}
	eventually(t, func() error {
		if now := connections(t, service.conn); now != before {
			return fmt.Errorf("%d connections, there were %d", now, before)
		}
		return nil
	})
}

// TestQuickTouch: a touch before the delay, or a key that needs none, causes no notice.
func TestQuickTouch(t *testing.T) {
	bus := desktop.StartBus(t)
	service := notifying(t, bus)
	p := on(bus)
	quick, slow := daemon(t), daemon(t)
	quick.Key, slow.Key = "quick", "slow"
	p.Touch(quick)()
	done := p.Touch(slow) // raised after the first would have been
	defer done()
	service.next("GetServerInformation")
	if body := fmt.Sprint(service.next("Notify").args[4]); !strings.Contains(body, "slow") {
		t.Errorf("raised %s", body)
	}
}

// TestTouchWithoutDesktop: nothing happens, and nothing is left behind, where
// nobody can be told.
func TestTouchWithoutDesktop(t *testing.T) {
	bus := desktop.StartBus(t)
	service := notifying(t, bus)
	s := daemon(t)
	for name, v := range map[string]variables{
		"no desktop":   {"DBUS_SESSION_BUS_ADDRESS": bus.Address},
		"no bus":       {"DISPLAY": ":7", "XDG_RUNTIME_DIR": t.TempDir()},
		"not unix":     {"DISPLAY": ":7", "DBUS_SESSION_BUS_ADDRESS": "tcp:host=127.0.0.1,port=1"},
		"not a socket": {"DISPLAY": ":7", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/dev/null"},
		"a program":    {"DISPLAY": ":7", "DBUS_SESSION_BUS_ADDRESS": "unixexec:path=/bin/sh"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if err := withVariables(v).show(ctx, s); err == nil || ctx.Err() != nil {
			t.Errorf("%s: got %v", name, err)
		}
		cancel()
	}
	service.quiet()
}

// TestTouchWhereNothingIsToBeShown: a mode without the desktop starts nothing.
func TestTouchWhereNothingIsToBeShown(t *testing.T) {
	bus := desktop.StartBus(t)
	service := notifying(t, bus)
	shown := on(bus)
	var done []func()
	for _, mode := range []Mode{Off, Terminal, "sometimes"} {
		p := on(bus)
		p.o.Mode = mode
		done = append(done, p.Touch(daemon(t)))
	}
	done = append(done, shown.Touch(daemon(t))) // raised after the others would have been
	service.next("GetServerInformation")
	service.next("Notify")
	service.quiet()
	for _, f := range done {
		f()
	}
	service.next("CloseNotification")
}

// TestTouchWithHungService: neither a service nor a bus that has stopped holds up
// anything, and a service that goes on has nothing to show that nobody withdraws.
func TestTouchWithHungService(t *testing.T) {
	for _, what := range []string{"service", "bus"} {
		t.Run(what, func(t *testing.T) {
			bus := desktop.StartBus(t)
			service := notifying(t, bus)
			stop := func(s syscall.Signal) {
				if what == "bus" {
					bus.Signal(s)
				} else if err := service.cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			stop(syscall.SIGSTOP)
			began := time.Now()
			err := on(bus).show(t.Context(), daemon(t))
			if took := time.Since(began); err == nil || pace.Over(t, took, 2*busLimit) {
				t.Errorf("got %v after %v", err, took)
			}
			stop(syscall.SIGCONT)
			if what == "service" {
				service.next("GetServerInformation")
			}
			other := on(bus).Touch(daemon(t))
			service.next("GetServerInformation")
			service.next("Notify")
			other()
			service.next("CloseNotification")
		})
	}
}

// TestTouchOnTerminal: without a desktop, the notice is a line on the terminal of a
// program for which another one asks. A program that calls the agent itself gets no
// such line.
func TestTouchOnTerminal(t *testing.T) {
	bus := desktop.StartBus(t)
	service := notifying(t, bus)
	for name, test := range map[string]struct {
		mode     Mode
		verified bool
		remote   bool
		told     bool
	}{
		"no desktop":              {mode: Auto, told: true},
		"terminals alone":         {mode: Terminal, told: true},
		"another program's":       {mode: Auto, verified: true},
		"desktops alone":          {mode: Desktop},
		"nowhere":                 {mode: Off},
		"a desktop, and far away": {mode: Auto, remote: true, told: true},
	} {
		t.Run(name, func(t *testing.T) {
			p, env := withVariables(variables{}), []string{}
			if test.remote {
				p, env = on(bus), []string{"SSH_CONNECTION=here.and.there"}
			}
			p.o.Mode = test.mode
			pane := newPane(t, "wait", env...)
			s := subject(t, pane.pid)
			s.Key, s.Device, s.Verified = "\x1b[2Jalice", "card 4711", test.verified
			done := p.Touch(s)
			defer done()
			if test.told {
				if screen := pane.wait(`touch "card 4711", for key "?[2Jalice"`); !strings.HasPrefix(screen, "holdfast: ") {
					t.Errorf("the terminal shows\n%s", screen)
				}
				return
			}
			<-time.After(TouchDelay + 300*time.Millisecond)
			if screen := strings.TrimSpace(pane.Screen()); screen != "" {
				t.Errorf("the terminal shows\n%s", screen)
			}
		})
	}
	service.quiet()
}
