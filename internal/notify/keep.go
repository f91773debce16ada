package notify

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// keptPrefix begins the names of listeners that the service manager keeps for the
// daemon. No socket unit of ours uses it.
const keptPrefix = "kept-"

// Keep has the service manager hold a listener open while the daemon is restarted, if
// the unit allows it (FileDescriptorStoreMax=). Connections wait in it meanwhile. The
// daemon's next process gets it from [Listeners], as [Kept] returns it.
func Keep(l net.Listener) error {
	raw, err := l.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = sendDescriptor("FDSTORE=1\nFDNAME="+keptName(l), int(fd)) }); err != nil {
		return err
	}
	return sent
}

// Unkeep has the service manager close its copy of a listener.
func Unkeep(l net.Listener) error {
	return send("FDSTOREREMOVE=1\nFDNAME=" + keptName(l))
}

// Kept returns those of the listeners that a process before this one gave to [Keep].
func Kept(passed map[string]net.Listener) (kept []net.Listener) {
	for name, l := range passed {
		if isKept(name) {
			kept = append(kept, l)
		}
	}
	return kept
}

func isKept(name string) bool { return strings.HasPrefix(name, keptPrefix) }

// keptName names a listener by its address. A name has no colon (sd_pid_notify_with_fds(3)).
func keptName(l net.Listener) string {
	return keptPrefix + strings.ReplaceAll(l.Addr().String(), ":", "-")
}

// sendDescriptor sends a message with a descriptor. Without a service manager it does
// nothing.
func sendDescriptor(state string, fd int) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(socket)
	if err := unix.Sendmsg(socket, []byte(state), unix.UnixRights(fd), &unix.SockaddrUnix{Name: path}, 0); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}
