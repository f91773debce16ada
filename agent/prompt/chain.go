package prompt

import (
	"fmt"
	"strings"

	"holdfast/internal/proc"
)

// maxChain is the number of processes that a prompt names.
const maxChain = 4

// ancestors returns a process, its parent, and so on, without init, up to the
// leader of its session and at most the given number. A parent that is younger than
// its child is another process with the same number.
func ancestors(p proc.Stat, most int) []proc.Stat {
	chain := []proc.Stat{p}
	for p.Parent > 1 && p.PID != p.Session && len(chain) < most {
		parent, err := look(p.Parent)
		if err != nil || parent.Start > p.Start {
			break
		}
		chain, p = append(chain, parent), parent
	}
	return chain
}

// askedBy describes the caller: the process, its ancestors, and the peer that
// reported it. Their user chooses these names.
func askedBy(p proc.Stat, s Subject) string {
	var names []string
	for _, link := range ancestors(p, maxChain) {
		names = append(names, fmt.Sprintf("%s (%d)", quoted(link.Name, maxName), link.PID))
	}
	text := strings.Join(names, " from ")
	if !s.Verified {
		text += ", reported by " + reporter(s.ReportedBy)
	}
	return text
}

func reporter(pid int32) string {
	p, err := look(pid)
	if err != nil {
		return fmt.Sprintf("a process that is gone (%d)", pid)
	}
	return fmt.Sprintf("%s (%d)", quoted(p.Name, maxName), pid)
}
