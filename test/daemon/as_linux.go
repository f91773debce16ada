package daemon

import (
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// DialAs connects to the daemon as another uid, whose gid is the same number.
// The kernel notes the identity of the thread that connects, so that one thread
// of the test changes its own and changes it back. It wants root.
func (p *process) DialAs(uid int) (net.Conn, error) {
	if os.Geteuid() != 0 {
		p.tb.Fatalf("connecting as uid %d wants root", uid)
	}
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		conn, err := dialAs(p.Socket, uid)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// dialAs leaves the thread with the other identity. The raw system calls act on
// this thread alone, unlike those of package syscall.
func dialAs(path string, uid int) (net.Conn, error) {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return nil, fmt.Errorf("setgroups: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return nil, fmt.Errorf("setresgid: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return nil, fmt.Errorf("setresuid: %w", errno)
	}
	return net.Dial("unix", path)
}
