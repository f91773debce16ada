package prompt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// maxProcFile bounds what is read of one file in /proc, in bytes.
const maxProcFile = 256 << 10

// A process is what /proc/PID/stat says of one.
type process struct {
	pid     int32
	name    string // as it calls itself; any bytes
	parent  int32
	group   int32
	session int32
	ended   bool // nobody has waited for it yet

	terminal   uint32 // the device number of its controlling terminal, as the kernel packs it; 0: none
	foreground int32  // the process group that the terminal is for now

	start uint64 // in clock ticks after boot
}

// parseStat reads /proc/PID/stat (proc_pid_stat(5)). The program's name is in
// parentheses and may itself hold parentheses, blanks and newlines, so the fields
// are counted from the last parenthesis.
func parseStat(text []byte) (process, error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return process{}, errors.New("stat: no program name")
	}
	fields := bytes.Fields(text[end+1:]) // the first of them is field 3
	if len(fields) < 20 {
		return process{}, fmt.Errorf("stat: %d fields after the program name", len(fields))
	}
	pid, err := strconv.ParseInt(string(bytes.TrimSpace(text[:open])), 10, 32)
	if err != nil {
		return process{}, fmt.Errorf("stat: pid: %w", err)
	}
	state := string(fields[0])
	p := process{pid: int32(pid), name: string(text[open+1 : end]), ended: state == "Z" || state == "X"}
	for field, to := range map[int]*int32{4: &p.parent, 5: &p.group, 6: &p.session, 8: &p.foreground} {
		n, err := strconv.ParseInt(string(fields[field-3]), 10, 32)
		if err != nil {
			return process{}, fmt.Errorf("stat: field %d: %w", field, err)
		}
		*to = int32(n)
	}
	terminal, err := strconv.ParseInt(string(fields[7-3]), 10, 32) // the kernel prints it with a sign
	if err != nil {
		return process{}, fmt.Errorf("stat: terminal: %w", err)
	}
	p.terminal = uint32(terminal)
	if p.start, err = strconv.ParseUint(string(fields[22-3]), 10, 64); err != nil {
		return process{}, fmt.Errorf("stat: start time: %w", err)
	}
	return p, nil
}

// look reads what a process looks like now.
func look(pid int32) (process, error) {
	text, err := readProc(pid, "stat")
	if err != nil {
		return process{}, err
	}
	p, err := parseStat(text)
	if err == nil && (p.pid != pid || p.ended) {
		err = fmt.Errorf("stat: process %d is not there", pid)
	}
	return p, err
}

// parseUID reads the effective uid from the line "Uid: real effective saved
// filesystem" of /proc/PID/status (proc_pid_status(5)). The kernel escapes
// newlines in the program's name, which comes before it.
func parseUID(status []byte) (uint32, error) {
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

func uidOf(pid int32) (uint32, error) {
	text, err := readProc(pid, "status")
	if err != nil {
		return 0, err
	}
	return parseUID(text)
}

// identify returns the subject's process, if it is still the one that was meant,
// and belongs to the user of this agent: nobody else is asked anything.
func identify(s Subject, own uint32) (process, error) {
	uid, err := uidOf(s.PID)
	if err != nil {
		return process{}, problem("the process that wants the key has ended", err)
	}
	if uid != s.UID || uid != own {
		return process{}, problem("a prompt is for processes of the agent's own user", nil)
	}
	// Last, so that what was read before is of the same process: it has had its
	// number since it was reported.
	p, err := look(s.PID)
	if err != nil || p.start != s.Start {
		return process{}, problem("the process that wants the key has ended", err)
	}
	return p, nil
}

// readProc reads a file of a process. Half a file could say something else than
// the whole.
func readProc(pid int32, name string) ([]byte, error) {
	text, err := readStart(pid, name)
	if err == nil && len(text) > maxProcFile {
		err = fmt.Errorf("%s: longer than %d bytes", name, maxProcFile)
	}
	return text, err
}

// readStart reads a file of a process as far as a little more than maxProcFile,
// into memory that is not moved while it does.
func readStart(pid int32, name string) ([]byte, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(int(pid)) + "/" + name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text := make([]byte, maxProcFile+1)
	n, err := io.ReadFull(f, text)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return text[:n], err
}
