package prompt

import (
	"fmt"
	"strings"
)

// maxChain is the number of processes that a prompt names.
const maxChain = 4

// ancestors returns a process, its parent, and so on, without init, up to the
// leader of its session and at most the given number. A parent that is younger than
// its child is another process with the same number.
func ancestors(p process, most int) []process {
	chain := []process{p}
	for p.parent > 1 && p.pid != p.session && len(chain) < most {
		parent, err := look(p.parent)
		if err != nil || parent.start > p.start {
			break
		}
		chain, p = append(chain, parent), parent
	}
	return chain
}

// askedBy describes the caller: the process, its ancestors, and the peer that
// reported it. Their user chooses these names.
func askedBy(p process, s Subject) string {
	var names []string
	for _, link := range ancestors(p, maxChain) {
		names = append(names, fmt.Sprintf("%s (%d)", quoted(link.name, maxName), link.pid))
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
	return fmt.Sprintf("%s (%d)", quoted(p.name, maxName), pid)
}
