package prompt

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"holdfast/test/desktop"
)

const mock = "org.freedesktop.DBus.Mock"

// A service is dbusmock's on a private bus, and what it was asked.
type service struct {
	t     *testing.T
	bus   *desktop.Bus
	conn  *dbus.Conn
	cmd   *exec.Cmd
	calls chan call
}

type call struct {
	name string
	args []any
	when time.Time
}

// mocked starts dbusmock with these arguments, which owns name on the bus then.
func mocked(t *testing.T, bus *desktop.Bus, name string, args ...string) *service {
	t.Helper()
	s := &service{t: t, bus: bus, conn: bus.Connect(), calls: make(chan call, 100)}
	// Debian's own, by its full path: another python3 may come first.
	s.cmd = exec.Command("/usr/bin/python3", append([]string{"-m", "dbusmock", "--session"}, args...)...)
	s.cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "DBUS_SESSION_BUS_ADDRESS=" + bus.Address}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		s.cmd.Wait()
	})
	if err := s.conn.AddMatchSignal(dbus.WithMatchInterface(mock), dbus.WithMatchMember("MethodCalled")); err != nil {
		t.Fatal(err)
	}
	signals := make(chan *dbus.Signal, 100)
	s.conn.Signal(signals)
	go s.collect(signals) // until the connection is closed
	eventually(t, func() error {
		var owned bool
		err := s.conn.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, name).Store(&owned)
		if err == nil && !owned {
			err = fmt.Errorf("nobody owns %s", name)
		}
		return err
	})
	return s
}

func (s *service) collect(signals <-chan *dbus.Signal) {
	for signal := range signals {
		if signal.Name == mock+".MethodCalled" && len(signal.Body) == 2 {
			name, _ := signal.Body[0].(string)
			variants, _ := signal.Body[1].([]dbus.Variant)
			c := call{name: name, when: time.Now()}
			for _, v := range variants {
				c.args = append(c.args, v.Value())
			}
			s.calls <- c
		}
	}
}

func notifying(t *testing.T, bus *desktop.Bus) *service {
	t.Helper()
	return mocked(t, bus, notifications, "--template", "notification_daemon")
}

// next returns the next call, which must be of this name.
func (s *service) next(name string) call {
	s.t.Helper()
	select {
	case c := <-s.calls:
		if c.name != name {
			s.t.Fatalf("got %s %v, want %s", c.name, c.args, name)
		}
		return c
	case <-time.After(20 * time.Second):
		s.t.Fatalf("no %s", name)
		panic("unreachable")
	}
}

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
	if took := time.Since(began); took > 100*time.Millisecond {
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

// TestQuickTouch: who touches the key at once, or has none that wants it, sees
// nothing.
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
	dir := t.TempDir()
	off := on(bus)
	off.o.Mode = Off
	for name, p := range map[string]*Prompter{
		"off":          off,
		"no desktop":   withVariables(variables{"DBUS_SESSION_BUS_ADDRESS": bus.Address}),
		"no bus":       withVariables(variables{"DISPLAY": ":7", "XDG_RUNTIME_DIR": dir}),
		"not unix":     withVariables(variables{"DISPLAY": ":7", "DBUS_SESSION_BUS_ADDRESS": "tcp:host=127.0.0.1,port=1"}),
		"not a socket": withVariables(variables{"DISPLAY": ":7", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/dev/null"}),
		"a program":    withVariables(variables{"DISPLAY": ":7", "DBUS_SESSION_BUS_ADDRESS": "unixexec:path=/bin/sh"}),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			finished := make(chan error, 1)
			if name == "off" {
				p.Touch(daemon(t))()
				return
			}
			go func() { finished <- p.show(ctx, daemon(t)) }()
			select {
			case err := <-finished:
				if err == nil {
					t.Error("a notice is said to be shown")
				}
			case <-time.After(20 * time.Second):
				t.Fatal("still waiting")
			}
		})
	}
	select {
	case c := <-service.calls:
		t.Errorf("the service was asked for %s %v", c.name, c.args)
	default:
	}
}

func withVariables(v variables) *Prompter {
	p := New(Options{Mode: Auto})
	p.getenv = v.get
	return p
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
			if took := time.Since(began); err == nil || took > 2*busLimit {
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

// TestBusOfAnotherUser: a socket on which somebody else listens is not the
// session's bus.
func TestBusOfAnotherUser(t *testing.T) {
	bus := desktop.StartBus(t)
	if _, err := dialBus(t.Context(), bus.Address, 0); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "hf-bus-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "bus")
	start(t, "listen", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65533, Gid: 65533}}, "LISTEN="+path)
	eventually(t, func() error { _, err := os.Stat(path); return err })
	if conn, err := dialBus(t.Context(), "unix:path="+path, 0); err == nil || !strings.Contains(err.Error(), "belongs to uid 65533") {
		t.Errorf("got %v, %v", conn, err)
	}
}

// TestDesktopOfServiceManager: an agent that was started before the desktop finds
// it by asking the user's systemd.
func TestDesktopOfServiceManager(t *testing.T) {
	bus := desktop.StartBus(t)
	manager := mocked(t, bus, systemd1, systemd1, systemd1Path, systemd1+".Manager")
	set := func(entries ...string) {
		t.Helper()
		object := manager.conn.Object(systemd1, systemd1Path)
		err := object.Call(mock+".UpdateProperties", 0, systemd1+".Manager", map[string]dbus.Variant{"Environment": dbus.MakeVariant(entries)}).Err
		if err != nil {
			t.Fatal(err)
		}
	}
	err := manager.conn.Object(systemd1, systemd1Path).Call(mock+".AddProperty", 0, systemd1+".Manager", "Environment", dbus.MakeVariant([]string{"A=b"})).Err
	if err != nil {
		t.Fatal(err)
	}
	p := withVariables(variables{"DBUS_SESSION_BUS_ADDRESS": bus.Address, "HOME": "/home/alice"})
	p.dirs = []string{"/usr/bin"}
	if _, err := p.desktop(t.Context()); err == nil {
		t.Error("got a desktop before there is one")
	}
	set("DISPLAY=:3", "WAYLAND_DISPLAY=wayland-1", "XAUTHORITY=no/path", "LD_PRELOAD=evil.so")
	at, err := p.desktop(t.Context())
	want := "DBUS_SESSION_BUS_ADDRESS=" + bus.Address + " DISPLAY=:3 HOME=/home/alice WAYLAND_DISPLAY=wayland-1 PATH=/usr/bin:/bin"
	if got := strings.Join(at.env, " "); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if err := manager.conn.Object(systemd1, systemd1Path).Call(mock+".UpdateProperties", 0, systemd1+".Manager",
		map[string]dbus.Variant{"Environment": dbus.MakeVariant("DISPLAY=:3")}).Err; err != nil {
		t.Fatal(err)
	}
	if at, err := p.desktop(t.Context()); err == nil {
		t.Errorf("got %+v from what is no list", at)
	}
}
