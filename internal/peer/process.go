package peer

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// What is read of one file at most, in bytes.
const (
	maxProcFile  = 64 << 10
	maxNamesFile = 16 << 20
)

// stat is what this package needs of /proc/PID/stat.
type stat struct {
	name  string // the program's name as it set it; any bytes
	ppid  int32
	start uint64
}

// parseStat reads /proc/PID/stat (proc_pid_stat(5)). The second field is the
// program's name in parentheses and may itself hold parentheses, blanks and
// newlines, so the fields after it are counted from the last parenthesis.
func parseStat(text []byte) (stat, error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return stat{}, errors.New("stat: no program name")
	}
	fields := bytes.Fields(text[end+1:]) // the first of them is field 3
	if len(fields) < 20 {
		return stat{}, fmt.Errorf("stat: %d fields after the program name", len(fields))
	}
	ppid, err := strconv.ParseInt(string(fields[4-3]), 10, 32)
	if err != nil {
		return stat{}, fmt.Errorf("stat: parent: %w", err)
	}
	start, err := strconv.ParseUint(string(fields[22-3]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("stat: start time: %w", err)
	}
	return stat{name: string(text[open+1 : end]), ppid: int32(ppid), start: start}, nil
}

func readStat(pid int32) (stat, error) {
	text, err := readSmall(procPath(pid, "stat"))
	if err != nil {
		return stat{}, err
	}
	return parseStat(text)
}

// startTime returns 0 for a process that /proc does not show, which is no fault
// where it is mounted with hidepid.
func startTime(pid int32) (uint64, error) {
	s, err := readStat(pid)
	if err != nil {
		return 0, unlessHidden(err)
	}
	return s.start, nil
}

// unlessHidden returns nil for what reading a file of a process says when /proc
// hides the process or it has ended. Any other error, such as that this process
// is out of descriptors or memory, says nothing about the process.
func unlessHidden(err error) error {
	for _, hidden := range []error{unix.ENOENT, unix.ESRCH, unix.EACCES, unix.EPERM} {
		if errors.Is(err, hidden) {
			return nil
		}
	}
	return err
}

// effectiveUID returns a process's effective uid. The owner of /proc/PID would
// be cheaper but is root for processes that are not dumpable.
func effectiveUID(pid int32) (uint32, error) {
	text, err := readSmall(procPath(pid, "status"))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return 0, ErrGone
	}
	if err != nil {
		return 0, err
	}
	return parseEffectiveUID(text)
}

// parseEffectiveUID reads the line "Uid: real effective saved filesystem" of
// /proc/PID/status (proc_pid_status(5)). The kernel escapes newlines in the
// program's name, which comes before it.
func parseEffectiveUID(status []byte) (uint32, error) {
	for line := range bytes.Lines(status) {
		rest, found := bytes.CutPrefix(line, []byte("Uid:"))
		if !found {
			continue
		}
		fields := bytes.Fields(rest)
		if len(fields) != 4 {
			break
		}
		uid, err := strconv.ParseUint(string(fields[1]), 10, 32)
		if err != nil {
			return 0, fmt.Errorf("status: effective uid: %w", err)
		}
		return uint32(uid), nil
	}
	return 0, errors.New("status: no line of uids")
}

func procPath(pid int32, file string) string {
	return "/proc/" + strconv.Itoa(int(pid)) + "/" + file
}

// readSmall reads a file in /proc.
func readSmall(path string) ([]byte, error) { return readAll(path, maxProcFile) }

// readAll reads a file and fails when it is longer than limit bytes: half a file
// could say something else than the whole. It does without os.File because some
// files are read for each connection, and registering them with the runtime's
// poller costs more than reading them.
func readAll(path string, limit int) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(fd)
	text := make([]byte, 0, 1024)
	for len(text) <= limit {
		if len(text) == cap(text) {
			text = append(text, 0)[:len(text)]
		}
		n, err := unix.Read(fd, text[len(text):cap(text)])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if n == 0 {
			return text, nil
		}
		text = text[:len(text)+n]
	}
	return nil, fmt.Errorf("%s: longer than %d bytes", path, limit)
}
