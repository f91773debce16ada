// Package proc reads the files of a process in /proc. Start at [ReadStat].
//
// A pid names another process once its process has ended, and nothing here
// detects that: the caller holds a pidfd and checks it after it has read, or
// compares start times.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// MaxFile is how much [Read] reads of one file, in bytes.
const MaxFile = 256 << 10

// KernelThread is the flag of a thread of the kernel (PF_KTHREAD in
// include/linux/sched.h).
const KernelThread = 0x00200000

// A Stat is what /proc/PID/stat says of a process (proc_pid_stat(5)).
type Stat struct {
	PID        int32
	Name       string // the program's name as the process set it; any bytes
	State      byte   // R, S, D, Z and so on
	Parent     int32
	Group      int32
	Session    int32
	Terminal   uint32 // device number of the controlling terminal, as the kernel packs it; 0 for none
	Foreground int32  // foreground process group of the terminal; -1 for none
	Flags      uint64
	Start      uint64 // in clock ticks after boot
}

// ReadStat reads the stat file of a process.
func ReadStat(pid int32) (Stat, error) {
	text, err := Read(pid, "stat")
	if err != nil {
		return Stat{}, err
	}
	return ParseStat(text)
}

// ParseStat reads the text of a stat file. The program's name is in parentheses
// and may itself hold parentheses, blanks and newlines, so the fields after it are
// counted from the last parenthesis.
func ParseStat(text []byte) (Stat, error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return Stat{}, errors.New("stat: no program name")
	}
	fields := bytes.Fields(text[end+1:]) // the first of them is field 3
	if len(fields) < 20 {
		return Stat{}, fmt.Errorf("stat: %d fields after the program name", len(fields))
	}
	var errs []error
	signed := func(text []byte) int32 {
		n, err := strconv.ParseInt(string(text), 10, 32)
		errs = append(errs, err)
		return int32(n)
	}
	unsigned := func(text []byte) uint64 {
		n, err := strconv.ParseUint(string(text), 10, 64)
		errs = append(errs, err)
		return n
	}
	s := Stat{
		PID: signed(bytes.TrimSpace(text[:open])), Name: string(text[open+1 : end]), State: fields[0][0],
		Parent: signed(fields[4-3]), Group: signed(fields[5-3]), Session: signed(fields[6-3]),
		Terminal:   uint32(signed(fields[7-3])), // the kernel prints it with a sign
		Foreground: signed(fields[8-3]), Flags: unsigned(fields[9-3]), Start: unsigned(fields[22-3]),
	}
	if err := errors.Join(errs...); err != nil {
		return Stat{}, fmt.Errorf("stat: %w", err)
	}
	return s, nil
}

// UIDs are the real, effective, saved and file system uid of a process.
type UIDs [4]uint32

// Effective returns the effective uid.
func (u UIDs) Effective() uint32 { return u[1] }

// ReadUIDs reads the user ids from the status file of a process. The owner of
// /proc/PID would be cheaper but is root for processes that are not dumpable.
func ReadUIDs(pid int32) (UIDs, error) {
	text, err := Read(pid, "status")
	if err != nil {
		return UIDs{}, err
	}
	return ParseUIDs(text)
}

// ParseUIDs reads the line "Uid: real effective saved filesystem" of the text of
// a status file (proc_pid_status(5)). The kernel escapes newlines in the program's
// name, which comes before it.
func ParseUIDs(status []byte) (UIDs, error) {
	for line := range bytes.Lines(status) {
		rest, found := bytes.CutPrefix(line, []byte("Uid:"))
		if !found {
			continue
		}
		fields := bytes.Fields(rest)
		var uids UIDs
		if len(fields) != len(uids) {
			break
		}
		for i, f := range fields {
			uid, err := strconv.ParseUint(string(f), 10, 32)
			if err != nil {
				return UIDs{}, fmt.Errorf("status: uid: %w", err)
			}
			uids[i] = uint32(uid)
		}
		return uids, nil
	}
	return UIDs{}, errors.New("status: no line of uids")
}

// Path returns the path of a file of a process.
func Path(pid int32, name string) string {
	return "/proc/" + strconv.Itoa(int(pid)) + "/" + name
}

// Read reads a file of a process, of at most [MaxFile] bytes.
func Read(pid int32, name string) ([]byte, error) { return ReadFile(Path(pid, name), MaxFile) }

// ReadFile reads a file and fails when it is longer than limit bytes: half a file
// could say something else than the whole. It does without os.File because some
// files are read for each connection, and registering them with the runtime's
// poller costs more than reading them.
func ReadFile(path string, limit int) ([]byte, error) {
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
