package ticket

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/sys/unix"

	"holdfast/internal/peer"
)

// kernelThread is PF_KTHREAD of the kernel's include/linux/sched.h, in field 9 of
// proc_pid_stat(5).
const kernelThread = 0x00200000

// stat is what this package needs of /proc/PID/stat.
type stat struct {
	name    string // the program's name as it set it; any bytes
	ppid    int32
	session int32
	flags   uint64
	start   uint64
}

// parseStat reads /proc/PID/stat (proc_pid_stat(5)). The program's name may hold
// anything, parentheses too, so the fields are counted from the last parenthesis.
func parseStat(text []byte) (stat, error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return stat{}, errors.New("stat: no program name")
	}
	fields := bytes.Fields(text[end+1:]) // the first of them is field 3
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("stat: %d fields after the program name", len(fields))
	}
	ppid, err1 := strconv.ParseInt(string(fields[4-3]), 10, 32)
	session, err2 := strconv.ParseInt(string(fields[6-3]), 10, 32)
	flags, err3 := strconv.ParseUint(string(fields[9-3]), 10, 64)
	start, err4 := strconv.ParseUint(string(fields[22-3]), 10, 64)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return stat{}, fmt.Errorf("stat: %w", err)
	}
	return stat{
		name: string(text[open+1 : end]), ppid: int32(ppid), session: int32(session), flags: flags, start: start,
	}, nil
}

func readStat(pid int32) (stat, error) {
	text, err := readProc(pid, "stat")
	if err != nil {
		return stat{}, err
	}
	return parseStat(text)
}

// parseUIDs reads the line "Uid: real effective saved filesystem" of
// /proc/PID/status (proc_pid_status(5)). The kernel escapes newlines in the
// program's name, which comes before it.
func parseUIDs(status []byte) (uids [4]uint32, err error) {
	for line := range bytes.Lines(status) {
		rest, found := bytes.CutPrefix(line, []byte("Uid:"))
		if !found {
			continue
		}
		fields := bytes.Fields(rest)
		if len(fields) != len(uids) {
			break
		}
		for i, f := range fields {
			uid, err := strconv.ParseUint(string(f), 10, 32)
			if err != nil {
				return uids, fmt.Errorf("status: uid: %w", err)
			}
			uids[i] = uint32(uid)
		}
		return uids, nil
	}
	return uids, errors.New("status: no line of uids")
}

// readUIDs returns the uids of a process. The owner of /proc/PID would be cheaper
// but is root for processes that are not dumpable.
func readUIDs(pid int32) ([4]uint32, error) {
	text, err := readProc(pid, "status")
	if err != nil {
		return [4]uint32{}, err
	}
	return parseUIDs(text)
}

// readProc reads a file of /proc/PID. os.ReadFile would ask the poller about each,
// which /proc always refuses: five system calls more, for each run of a plugin.
func readProc(pid int32, file string) ([]byte, error) {
	fd, err := unix.Open(procPath(pid, file), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: procPath(pid, file), Err: err}
	}
	defer unix.Close(fd)
	var text []byte
	for part := make([]byte, 4096); ; {
		n, err := unix.Read(fd, part)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: procPath(pid, file), Err: err}
		case n == 0:
			return text, nil
		default:
			text = append(text, part[:n]...)
		}
	}
}

func procPath(pid int32, file string) string {
	return "/proc/" + strconv.Itoa(int(pid)) + "/" + file
}

// printable makes a program's name fit for one line on a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// A process is one that holds tickets: the pidfd names it for good.
type process struct {
	Process
	name string // as it calls itself; for hints

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

// ended says of each pidfd whether its process has ended, in one system call.
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
