package ticket

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/fault"
	"holdfast/internal/proc"
)

// maxDescriptors bounds how many descriptors of a process are looked at. A process
// with more is rejected.
const maxDescriptors = 1 << 16

// notShell is the hint for the usual cause: a shell ran the plugin, received the
// ticket and passed it to kubectl.
const notShell = "kubectl has to run the plugin itself, not through a shell: `holdfast kubeconfig check` finds the cause"

const runAgain = "run the command again: the plugin gets a new ticket"

// Holder is the process that a ticket was issued to.
type Holder struct {
	Process Process
	Profile string

	process   *process
	claims    string // of the token, base64
	hash      [sha256.Size]byte
	expires   time.Time // with a monotonic reading, which stands still while the machine sleeps
	wall      time.Time // the same without it
	forgotten atomic.Bool
}

func (h *Holder) expireAt(end time.Time) { h.expires, h.wall = end, end.Round(0) }

// expired compares with both clocks: the wall clock runs on while the machine sleeps,
// and the monotonic clock cannot be set back.
func (h *Holder) expired(now time.Time) bool {
	return !now.Before(h.expires) || !now.Round(0).Before(h.wall)
}

// Alive returns nil while the holder's process lives and the ticket is not
// forgotten or expired.
func (h *Holder) Alive() error {
	if h.forgotten.Load() || h.expired(time.Now()) {
		return denied(runAgain, "the ticket has expired or was forgotten")
	}
	if err := h.process.alive(); err != nil {
		return denied(notShell, "the process that the ticket was issued to has ended")
	}
	return nil
}

// Owns returns nil when the holder's process, still alive, owns the client's end
// of the TCP connection between two loopback addresses: the kernel's uid for the
// socket (sock_diag(7)) is the process's, and the socket's inode is among the
// process's descriptors, of which at most 65536 are looked at. The connection has
// to be established. A process whose descriptors cannot be read is rejected:
// it may not be dumpable, or belong to a user whose processes the broker may not
// inspect (CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH allow it).
func (h *Holder) Owns(client, server netip.AddrPort) error {
	if err := h.Alive(); err != nil {
		return err
	}
	s, err := established(client, server)
	if err != nil {
		return err
	}
	if s.uid != h.Process.UID {
		return denied("a ticket is valid only in the process that ran the plugin", "the connection belongs to another user")
	}
	switch found, err := hasDescriptor(h.Process.PID, s.inode, maxDescriptors); {
	case err != nil:
		return err
	case !found:
		return denied(fmt.Sprintf("the plugin's parent was %d %s: that process has to connect; %s", h.Process.PID, h.process.name, directly),
			"the process that the ticket was issued to does not own the connection")
	}
	return h.Alive() // proves that this process had the pid all the time
}

// OwnerUID returns the uid whose process opened the client's end of an established
// TCP connection between two loopback addresses.
func OwnerUID(client, server netip.AddrPort) (uint32, error) {
	s, err := established(client, server)
	return s.uid, err
}

// hasDescriptor reports whether a process has the socket with this inode open. It
// fails when the process has more than limit descriptors and the socket is not among
// those read.
func hasDescriptor(pid int32, inode uint32, limit int) (bool, error) {
	directory, err := os.Open(proc.Path(pid, "fd"))
	if err != nil {
		return false, closedTo(pid, err)
	}
	defer directory.Close()
	want := "socket:[" + strconv.FormatUint(uint64(inode), 10) + "]"
	for seen := 0; seen < limit; {
		names, err := directory.Readdirnames(512)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, closedTo(pid, err)
		}
		seen += len(names)
		found, err := anyLink(int(directory.Fd()), names, want)
		if err != nil {
			return false, closedTo(pid, err)
		}
		if found {
			return true, nil
		}
	}
	return false, denied("close descriptors, or connect before so many are open",
		"process %d has more than %d descriptors open", pid, limit)
}

// anyLink reports whether one of the links in a directory points to want.
func anyLink(directory int, names []string, want string) (bool, error) {
	target := make([]byte, 64) // longer targets are cut; none of them is a socket
	for _, name := range names {
		n, err := unix.Readlinkat(directory, name, target)
		if errors.Is(err, unix.ENOENT) {
			continue // closed in between
		}
		if err != nil {
			return false, err
		}
		if string(target[:n]) == want {
			return true, nil
		}
	}
	return false, nil
}

// closedTo returns the error for descriptors that cannot be read.
func closedTo(pid int32, err error) error {
	return &fault.Error{
		Kind: fault.Denied, Message: fmt.Sprintf("the descriptors of process %d cannot be read", pid),
		Hint: "the process has ended, is not dumpable (prctl(2)), or is another user's: use the broker of that user", Err: err,
	}
}
