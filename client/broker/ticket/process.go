package ticket

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"holdfast/internal/peer"
)

// A process holds tickets; the pidfd identifies it for good.
type process struct {
	Process
	name string // the program's name as the process set it; for hints

	mu    sync.RWMutex // guards pidfd against being closed, and its number reused, while it is polled
	pidfd int          // -1 once closed

	holders map[*Holder]bool // its tickets; guarded by the table's lock
}

// alive returns peer.ErrGone once the process has ended (pidfd_open(2)), or its
// last ticket has been forgotten.
func (p *process) alive() error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.pidfd < 0 {
		return peer.ErrGone
	}
	ended, err := ended([]int{p.pidfd})
	if err == nil && ended[0] {
		err = peer.ErrGone
	}
	return err
}

func (p *process) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
	}
	p.pidfd = -1
}

// ended reports for each pidfd whether its process has ended, in one system call.
func ended(pidfds []int) ([]bool, error) {
	polls := make([]unix.PollFd, len(pidfds))
	for i, fd := range pidfds {
		polls[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	for {
		_, err := unix.Poll(polls, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("poll of pidfds: %w", err)
		}
		break
	}
	gone := make([]bool, len(polls))
	for i, p := range polls {
		gone[i] = p.Revents != 0
	}
	return gone, nil
}
