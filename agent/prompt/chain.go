package prompt

import (
	"fmt"
	"strings"
)

// maxChain is how many processes a prompt names.
const maxChain = 4

// ancestors returns a process, its parent, and so on, without init, up to the
// leader of its session and at most so many. A parent that is younger than its
// child is another process with the same number.
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

// askedBy says for people who wants something: the process and those that it
// comes from, and who reported it. Whoever runs them chooses the names.
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
