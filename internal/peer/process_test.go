package peer

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

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
