package prompt

import (
	"errors"
	"fmt"
	"io"
	"os"

	"holdfast/internal/proc"
)

// A process is a part of /proc/PID/stat.
type process struct {
	pid     int32
	name    string // chosen by the process; any bytes
	parent  int32
	group   int32
	session int32

	terminal   uint32 // the device number of its controlling terminal, as the kernel packs it; 0: none
	foreground int32  // the process group that the terminal is for now

	start uint64 // in clock ticks after boot
}

// look reads the present state of a process.
func look(pid int32) (process, error) {
	s, err := proc.ReadStat(pid)
	if err == nil && (s.PID != pid || s.State == 'Z' || s.State == 'X') {
		err = fmt.Errorf("stat: process %d is not there", pid)
	}
	if err != nil {
		return process{}, err
	}
	return process{
		pid: s.PID, name: s.Name, parent: s.Parent, group: s.Group, session: s.Session,
		terminal: s.Terminal, foreground: s.Foreground, start: s.Start,
	}, nil
}

// identify returns the subject's process, if it is still the one that was meant,
// and belongs to the user of this agent: no other user is prompted.
func identify(s Subject, own uint32) (process, error) {
	uids, err := proc.ReadUIDs(s.PID)
	if err != nil {
		return process{}, problem("the process that wants the key has ended", err)
	}
	if uid := uids.Effective(); uid != s.UID || uid != own {
		return process{}, problem("a prompt is for processes of the agent's own user", nil)
	}
	// The start time is checked last, so that the uid above is of the same process.
	p, err := look(s.PID)
	if err != nil || p.start != s.Start {
		return process{}, problem("the process that wants the key has ended", err)
	}
	return p, nil
}

// readStart reads at most proc.MaxFile bytes of a file of a process, into memory that
// is not moved meanwhile, so that the caller can clear it.
func readStart(pid int32, name string) ([]byte, error) {
	f, err := os.Open(proc.Path(pid, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text := make([]byte, proc.MaxFile)
	n, err := io.ReadFull(f, text)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return text[:n], err
}
