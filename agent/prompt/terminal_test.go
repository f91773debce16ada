package prompt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/internal/fault"
)

// TestRefused: no prompt appears on a terminal that is not the caller's own.
func TestRefused(t *testing.T) {
	pane := newPane(t, "wait")
	good := subject(t, pane.pid)
	p := bare(t, "")
	for name, test := range map[string]struct {
		change func(s *Subject)
		text   string
	}{
		"another start":   {func(s *Subject) { s.Start++ }, "has ended"},
		"no start":        {func(s *Subject) { s.Start = 0 }, "has ended"},
		"no such process": {func(s *Subject) { s.PID = 1 << 22 }, "has ended"},
		"another uid":     {func(s *Subject) { s.UID = 12345 }, "the agent's own user"},
	} {
		t.Run(name, func(t *testing.T) {
			s := good
			test.change(&s)
			_, err := p.PIN(t.Context(), s)
			wantKind(t, err, fault.PINRequired, test.text)
			wantKind(t, p.Confirm(t.Context(), s), fault.ConfirmationRequired, test.text)
		})
	}
}

// TestWhichTerminal starts from a terminal that can be used and changes one thing.
func TestWhichTerminal(t *testing.T) {
	p := bare(t, "")
	refused := func(t *testing.T, pid int32, text string) {
		t.Helper()
		_, err := p.PIN(t.Context(), subject(t, pid))
		if e := wantKind(t, err, fault.PINRequired, ""); !strings.Contains(e.Error(), text) {
			t.Errorf("got %v, want %q", e, text)
		}
	}
	t.Run("none", func(t *testing.T) {
		refused(t, start(t, "wait", &syscall.SysProcAttr{Setsid: true}), "no terminal")
	})
	t.Run("in the background", func(t *testing.T) {
		refused(t, childOf(t, newPane(t, "background").pid), "not in the foreground")
	})
	t.Run("of another user", func(t *testing.T) {
		pane := newPane(t, "wait")
		if err := os.Chown(pane.tty, 65533, -1); err != nil {
			t.Fatal(err)
		}
		refused(t, pane.pid, "belongs to uid 65533")
	})
	t.Run("of everybody", func(t *testing.T) {
		pane := newPane(t, "wait")
		if err := os.Chmod(pane.tty, 0o606); err != nil {
			t.Fatal(err)
		}
		refused(t, pane.pid, "open to other users")
	})
	t.Run("in a container", func(t *testing.T) {
		pane := newPane(t, "wait", "unshare", "-m", "sh", "-c", `'mount -t devpts -o newinstance none /dev/pts && exec "$@"'`, "sh", "env")
		refused(t, pane.pid, "in a container")
	})
}

// TestOtherUser: a process of another user is asked nothing, on whichever
// terminal it is.
func TestOtherUser(t *testing.T) {
	pid := start(t, "wait", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65533, Gid: 65533}})
	_, err := bare(t, "").PIN(t.Context(), subject(t, pid))
	wantKind(t, err, fault.PINRequired, "the agent's own user")
}

func TestTerminalIsTheDeviceThatTheKernelNamed(t *testing.T) {
	zero := terminal{path: "/dev/zero", device: 1<<8 | 5}
	fd, err := zero.open(0)
	if err == nil || !strings.Contains(err.Error(), "open to other users") {
		t.Errorf("got %d, %v: it is the right device", fd, err)
	}
	null := terminal{path: "/dev/null", device: 1<<8 | 5}
	if fd, err := null.open(0); err == nil || !strings.Contains(err.Error(), "is not device 1:5") {
		t.Errorf("got %d, %v", fd, err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/dev/zero", link); err != nil {
		t.Fatal(err)
	}
	if fd, err := (terminal{path: link, device: 1<<8 | 5}).open(0); !errors.Is(err, unix.ELOOP) {
		t.Errorf("got %d, %v: a link may lead anywhere", fd, err)
	}
}

func TestPathOf(t *testing.T) {
	for device, want := range map[uint32]string{
		136 << 8:                 "/dev/pts/0",
		136<<8 | 7:               "/dev/pts/7",
		136<<8 | 0x100000 | 0x2c: "/dev/pts/300",
		4<<8 | 2:                 "/dev/tty2",
		4<<8 | 64:                "/dev/ttyS0",
		4 << 8:                   "", // the console that is shown now, whichever it is
		5 << 8:                   "", // /dev/tty itself
		1<<8 | 3:                 "",
	} {
		if got := pathOf(device); got != want {
			t.Errorf("device %#x is %q, want %q", device, got, want)
		}
	}
}
