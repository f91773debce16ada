package prompt

import (
	"fmt"
	"os/exec"
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

// quiet fails when there was an unexpected call.
func (s *service) quiet() {
	s.t.Helper()
	select {
	case c := <-s.calls:
		s.t.Errorf("the service was asked for %s %v", c.name, c.args)
	default:
	}
}
