package prompt

import (
	"errors"
	"fmt"
	"io"
	"os"

	"holdfast/internal/proc"
)

// A process is what /proc/PID/stat says of one.
type process struct {
	pid     int32
	name    string // as it calls itself; any bytes
	parent  int32
	group   int32
	session int32

	terminal   uint32 // the device number of its controlling terminal, as the kernel packs it; 0: none
	foreground int32  // the process group that the terminal is for now

	start uint64 // in clock ticks after boot
}

// look reads what a process looks like now.
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
// and belongs to the user of this agent: nobody else is asked anything.
func identify(s Subject, own uint32) (process, error) {
	uids, err := proc.ReadUIDs(s.PID)
	if err != nil {
		return process{}, problem("the process that wants the key has ended", err)
	}
	if uid := uids.Effective(); uid != s.UID || uid != own {
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

// readStart reads a file of a process as far as proc.MaxFile,
// into memory that is not moved while it does.
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
