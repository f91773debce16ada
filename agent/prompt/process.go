package prompt

import (
	"errors"
	"fmt"
	"io"
	"os"

	"holdfast/internal/proc"
)

// look reads the present state of a process.
func look(pid int32) (proc.Stat, error) {
	s, err := proc.ReadStat(pid)
	if err == nil && (s.PID != pid || s.State == 'Z' || s.State == 'X') {
		err = fmt.Errorf("stat: process %d is not there", pid)
	}
	return s, err
}

// identify returns the subject's process, if it is still the one that was meant,
// and belongs to the user of this agent: no other user is prompted.
func identify(s Subject, own uint32) (proc.Stat, error) {
	uids, err := proc.ReadUIDs(s.PID)
	if err != nil {
		return proc.Stat{}, problem("the process that wants the key has ended", err)
	}
	if uid := uids.Effective(); uid != s.UID || uid != own {
		return proc.Stat{}, problem("a prompt is for processes of the agent's own user", nil)
	}
	// The start time is checked last, so that the uid above is of the same process.
	p, err := look(s.PID)
	if err != nil || p.Start != s.Start {
		return proc.Stat{}, problem("the process that wants the key has ended", err)
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
