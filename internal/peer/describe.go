package peer

import (
	"os"
	"strings"

	"holdfast/internal/printable"
	"holdfast/internal/proc"
)

// maxChain bounds how many ancestors a description follows.
const maxChain = 16

// A Description describes a peer for prompts and audit records. The owner of the
// process can forge all of it, by starting a program under another name or from
// another parent: no decision may depend on it.
type Description struct {
	Executable string // path of the program, with " (deleted)" behind it when the file is gone
	Chain      []Link // the process, its parent, and so on, without init
	Unit       string // the innermost unit or scope of its cgroup, also in a user's session
}

// A Link is one process of a chain.
type Link struct {
	PID  int32
	Name string // as the process calls itself
}

// String returns the chain from the outermost process to the peer, "sshd > bash
// > kubectl".
func (d Description) String() string {
	names := make([]string, len(d.Chain))
	for i, link := range d.Chain {
		names[len(names)-1-i] = link.Name
	}
	return strings.Join(names, " > ")
}

// Describe reads the description from /proc. A field that cannot be read is empty;
// all are when the process has ended. Characters that do not print
// are replaced, so that a name cannot rewrite the line it is shown on.
func (p *Peer) Describe() Description {
	d := Description{
		Executable: executable(p.PID),
		Chain:      chain(p.PID),
		Unit:       sessionUnit(p.PID),
	}
	if p.Alive() != nil {
		return Description{}
	}
	return d
}

func executable(pid int32) string {
	path, err := os.Readlink(proc.Path(pid, "exe"))
	if err != nil {
		return ""
	}
	return printable.Line(path)
}

func chain(pid int32) []Link {
	var links []Link
	for pid > 1 && len(links) < maxChain {
		s, err := proc.ReadStat(pid)
		if err != nil {
			break
		}
		links = append(links, Link{PID: pid, Name: printable.Line(s.Name)})
		pid = s.Parent
	}
	return links
}

// sessionUnit returns the last component of the cgroup's path that looks like a
// service or scope.
func sessionUnit(pid int32) string {
	text, err := proc.Read(pid, "cgroup")
	if err != nil {
		return ""
	}
	unit := ""
	for name := range strings.SplitSeq(cgroupPath(string(text)), "/") {
		if strings.HasSuffix(name, ".service") || strings.HasSuffix(name, ".scope") {
			unit = name
		}
	}
	return printable.Line(unit)
}
