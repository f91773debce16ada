package notify

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/test/pace"
)

// manager listens as a service manager does and sets NOTIFY_SOCKET.
func manager(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return conn
}

func message(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	b := make([]byte, 4096)
	n, err := conn.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func TestStates(t *testing.T) {
	conn := manager(t)
	tests := []struct {
		name string
		send func() error
		want string
	}{
		{"ready", Ready, `^READY=1$`},
		{"reloading", Reloading, `^RELOADING=1\nMONOTONIC_USEC=[0-9]+\n$`},
		{"stopping", Stopping, `^STOPPING=1$`},
		{"status", func() error { return Status("2 keys") }, `^STATUS=2 keys$`},
		{"no status", func() error { return Status("") }, `^STATUS=$`},
		{"status of two lines", func() error { return Status("a\nREADY=1\r\n") }, `^STATUS=a READY=1$`},
	}
	for _, test := range tests {
		if err := test.send(); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if got := message(t, conn); !regexp.MustCompile(test.want).MatchString(got) {
			t.Errorf("%s: got %q, want %s", test.name, got, test.want)
		}
	}
}

func TestNoManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Ready(); err != nil {
		t.Errorf("without a service manager: %v", err)
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	if err := Ready(); err == nil {
		t.Error("nobody listens, and there is no error")
	}
}

func TestWatchdog(t *testing.T) {
	conn := manager(t)
	t.Setenv("WATCHDOG_USEC", "100000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	ctx, stop := context.WithCancel(context.Background())
	var sick atomic.Bool
	ended := make(chan error, 1)
	go func() {
		ended <- Watchdog(ctx, func() error {
			if sick.Load() {
				return errors.New("accept loop is stuck")
			}
			return nil
		})
	}()
	start := time.Now()
	for range 4 {
		if got := message(t, conn); got != "WATCHDOG=1" {
			t.Errorf("alive: got %q, want WATCHDOG=1", got)
		}
	}
	if took := time.Since(start); took < 150*time.Millisecond || pace.Over(t, took, 600*time.Millisecond) {
		t.Errorf("four pings in %v, want one in 50 ms", took)
	}
	sick.Store(true)
	const status = "STATUS=watchdog: accept loop is stuck"
	for message(t, conn) != status {
		// A ping may have been on its way.
	}
	for range 3 {
		if got := message(t, conn); got != status {
			t.Errorf("not alive: got %q, want %q", got, status)
		}
	}
	sick.Store(false)
	for message(t, conn) != "WATCHDOG=1" {
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestNoWatchdog(t *testing.T) {
	for usec, pid := range map[string]string{"": "", "1000": "1"} {
		t.Setenv("WATCHDOG_USEC", usec)
		t.Setenv("WATCHDOG_PID", pid)
		if err := Watchdog(context.Background(), nil); err != nil {
			t.Errorf("%q, %q: %v", usec, pid, err)
		}
	}
	t.Setenv("WATCHDOG_USEC", "soon")
	t.Setenv("WATCHDOG_PID", "")
	if err := Watchdog(context.Background(), nil); err == nil {
		t.Error("an interval that is no number was taken")
	}
}
