package peer

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"holdfast/test/role"

	"golang.org/x/sys/unix"
)

func TestDescribe(t *testing.T) {
	l, path := role.Listen(t)
	client := start(t, nil, "name=evil\x1b[2K\n\u202efoo", "connect="+path, "say=ready", "wait")
	client.Expect("ready")
	d := identify(t, l).Describe()
	if len(d.Chain) < 2 || d.Chain[0].PID != client.Pid() || d.Chain[1].PID != int32(os.Getpid()) {
		t.Fatalf("got chain %+v, want %d, its parent %d, and so on", d.Chain, client.Pid(), os.Getpid())
	}
	if got := d.Chain[0].Name; got != "evil?[2K??foo" {
		t.Errorf("got name %q, want the unprintable replaced", got)
	}
	if want := role.Program(t); d.Executable != want {
		t.Errorf("got executable %q, want %q", d.Executable, want)
	}
	if !strings.HasSuffix(d.String(), " > evil?[2K??foo") {
		t.Errorf("got %q, want the peer last", d)
	}
}

func TestUnlessHidden(t *testing.T) {
	for err, hidden := range map[error]bool{
		unix.ENOENT: true, unix.ESRCH: true, unix.EACCES: true, unix.EPERM: true,
		unix.EMFILE: false, unix.ENFILE: false, unix.ENOMEM: false, unix.EIO: false,
	} {
		if got := unlessHidden(fmt.Errorf("/proc/1/stat: %w", err)); (got == nil) != hidden {
			t.Errorf("%v: got %v, want hidden %t", err, got, hidden)
		}
	}
}

func TestProcessThatIsNotThere(t *testing.T) {
	const pid = 1<<31 - 1 // above the kernel's limit
	if start, err := startTime(pid); start != 0 || err != nil {
		t.Errorf("start time: got %d, %v, want 0", start, err)
	}
	if unit, err := systemUnit(pid); unit != "" || err != nil {
		t.Errorf("unit: got %q, %v, want none", unit, err)
	}
}
