package logind_test

import (
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/agent/logind"
	"holdfast/test/desktop"
)

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

// A bus that accepts connections and does not answer does not keep Follow from ending.
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
	f.until("it is said", func() bool { return strings.Contains(f.log.String(), "the bus does not answer: authenticate") })
	f.stop()
	l.Close()
}

// Only a Unix socket is a bus for the agent.
func TestBusElsewhere(t *testing.T) {
	for _, address := range []string{"tcp:host=127.0.0.1,port=1", "unixexec:path=/bin/true", "unix:path=/nowhere;tcp:host=localhost,port=1", "autolaunch:", "nonsense", ";"} {
		f := follow(t, address, logind.Options{}, nil)
		select {
		case <-f.done:
		case <-time.After(testTimeout):
			t.Fatalf("%s: still trying\n%s", address, f.log)
		}
		if !strings.Contains(f.log.String(), "not at a Unix socket") {
			t.Errorf("%s: %s", address, f.log)
		}
	}
}
