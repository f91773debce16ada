package peer

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"holdfast/internal/proc"

	"golang.org/x/sys/unix"
)

// HasPeerPidfd reports whether this kernel answers SO_PEERPIDFD (Linux 6.5 and
// later). Where it does not, [Identity.UnitRacy] is set on every peer.
func HasPeerPidfd() (bool, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	pidfd, err := unix.GetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		return false, nil
	}
	return true, unix.Close(pidfd)
}

// peerPidfd returns a pidfd of the process that connected fd, and whether it had
// to be found by pid.
func peerPidfd(fd int, cred *unix.Ucred) (pidfd int, racy bool, err error) {
	pidfd, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	switch {
	case err == nil:
		return pidfd, false, nil
	case errors.Is(err, unix.ENOPROTOOPT):
		pidfd, err = pidfdByPID(cred)
		return pidfd, true, err
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODATA):
		// Kernels from 6.5 on have returned these for a process that was reaped.
		return -1, false, fmt.Errorf("SO_PEERPIDFD: %w", ErrGone)
	}
	return -1, false, fmt.Errorf("SO_PEERPIDFD: %w", err)
}

// pidfdByPID opens the process that has the peer's pid now and checks that it also
// has the peer's uid. A successor with the same pid and the same uid passes:
// [Identity.UnitRacy] marks that race.
func pidfdByPID(cred *unix.Ucred) (int, error) {
	pidfd, err := unix.PidfdOpen(int(cred.Pid), 0)
	if errors.Is(err, unix.ESRCH) {
		return -1, fmt.Errorf("pidfd_open: %w", ErrGone)
	}
	if err != nil {
		return -1, fmt.Errorf("pidfd_open: %w", err)
	}
	uids, err := proc.ReadUIDs(cred.Pid)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH):
		err = ErrGone
	case err == nil && uids.Effective() != cred.Uid:
		err = fmt.Errorf("process %d now has uid %d: %w", cred.Pid, uids.Effective(), ErrGone)
	}
	if err == nil {
		err = alive(pidfd)
	}
	if err != nil {
		unix.Close(pidfd)
		return -1, err
	}
	return pidfd, nil
}

// alive returns ErrGone when the process behind pidfd has ended (pidfd_open(2):
// the descriptor becomes readable), whether or not it was waited for.
func alive(pidfd int) error {
	poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("poll of pidfd: %w", err)
		case n != 0:
			return ErrGone
		}
		return nil
	}
}

// peerGroups returns the supplementary groups of the process that connected fd:
// sorted, each once, without the overflow gid, which stands for groups that are not
// mapped into this user namespace.
func peerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 32)
	for {
		size := uint32(len(groups) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		if errno == unix.ERANGE && int(size) > len(groups)*4 {
			groups = make([]uint32, size/4)
			continue
		}
		if errno != 0 {
			return nil, fmt.Errorf("SO_PEERGROUPS: %w", errno)
		}
		return normalise(groups[:size/4]), nil
	}
}

func normalise(groups []uint32) []uint32 {
	slices.Sort(groups)
	groups = slices.Compact(groups)
	return slices.DeleteFunc(groups, func(g uint32) bool { return g == OverflowUID })
}

// overflowUID holds the uid that stands for unmapped uids. The default always
// counts, and so does the value in /proc: an administrator may have changed it
// (proc_sys_kernel(5), overflowuid).
type overflowUID struct {
	once sync.Once
	uid  uint32
}

func (o *overflowUID) is(uid uint32) bool {
	o.once.Do(func() {
		o.uid = OverflowUID
		text, err := proc.ReadFile("/proc/sys/kernel/overflowuid", proc.MaxFile)
		if n, perr := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32); err == nil && perr == nil {
			o.uid = uint32(n)
		}
	})
	return uid == OverflowUID || uid == o.uid || uid == ^uint32(0)
}
