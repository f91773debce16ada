// Package printable makes untrusted text fit for a terminal and for a log, such as names
// in certificates, paths, and messages of servers.
// Start at [Line].
package printable

import (
	"strconv"
	"strings"
)

// Line replaces each character that does not print by a question mark, so that
// the text cannot move the cursor, hide text or begin a line.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// Lines is [Line] for text of several lines: it keeps the newlines.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Line(line)
	}
	return strings.Join(lines, "\n")
}
