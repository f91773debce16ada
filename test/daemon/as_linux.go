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
	go offMainThread(func() {
		conn, err := dialAs(p.Socket, uid)
		done <- result{conn, err}
	})
	r := <-done
	return r.conn, r.err
}

// offMainThread runs do on a thread that ends with it. The main thread never ends,
// and /proc shows its identity as the whole process's.
func offMainThread(do func()) {
	runtime.LockOSThread() // and never unlocked, but on the main thread
	if unix.Gettid() != unix.Getpid() {
		do()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		offMainThread(do) // on another thread, since this one is taken
	}()
	<-done
	runtime.UnlockOSThread()
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
