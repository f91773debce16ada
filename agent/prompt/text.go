package prompt

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds on what a prompt shows of others, in characters. The terminal's width
// is that of pinentry-curses on a terminal of 80 columns.
const (
	maxName        = 64
	maxDestination = 256
	maxWidth       = 70
)

// quoted returns somebody else's text in quotation marks. Whatever could end
// them, start a line, mean something to what draws the prompt, or look like other
// text is a question mark: all that does not print, everything outside ASCII, the
// signs of markup, and the one that Assuan escapes with. Longer text than most characters ends in three dots.
func quoted(s string, most int) string {
	var b strings.Builder
	count := 0
	for _, r := range s {
		if count == most {
			b.WriteString("...")
			break
		}
		if r < ' ' || r > '~' || strings.ContainsRune(`"<>&%`, r) {
			r = '?'
		}
		b.WriteRune(r)
		count++
	}
	return `"` + b.String() + `"`
}

// toServers are the operations whose signatures go to a server, as package policy
// names them. Of the others there is nothing to verify a server of.
var toServers = []string{"sign-tls-client", "sign-client-assertion", "sign-aws-request"}

// explain says what a prompt is about, on lines of at most [maxWidth] characters,
// without the signs of markup: notification daemons would interpret them.
func explain(first string, s Subject, who string) string {
	to := ""
	switch {
	case s.Destination != "":
		to = quoted(s.Destination, maxDestination)
	case slices.Contains(toServers, s.Operation):
		to = "not verified which server"
	}
	lines := []string{wrap(first + ": " + quoted(s.Key, maxName))}
	for _, part := range []struct{ name, text string }{
		{"on", named(s.Device)}, {"for", named(s.Purpose, s.Operation)}, {"to", to}, {"asked by", who},
	} {
		if part.text != "" {
			lines = append(lines, wrap(part.name+": "+part.text))
		}
	}
	return strings.Join(lines, "\n")
}

// named returns those texts that are not empty, quoted.
func named(texts ...string) string {
	var list []string
	for _, text := range texts {
		if text != "" {
			list = append(list, quoted(text, maxName))
		}
	}
	return strings.Join(list, ", ")
}

// triesLeft says how many tries a PIN has, "" when it is not known.
func triesLeft(n int) string {
	switch {
	case n == 1:
		return "the last try"
	case n > 1:
		return fmt.Sprintf("%d tries left", n)
	}
	return ""
}

// complaint says why a PIN is asked for again, and how many tries it has.
func complaint(s Subject) string {
	again, tries := "", triesLeft(s.Tries)
	if s.Again != "" {
		again = strings.Trim(quoted(s.Again, maxName), `"`)
	}
	if again != "" && tries != "" {
		again += ", "
	}
	return again + tries
}

// wrap breaks a line where there is a blank, or in a word that is too long for
// one. The lines that follow are indented, so that none of them looks like one of
// its own.
func wrap(line string) string {
	const indent = "    "
	var b strings.Builder
	for room := maxWidth; len(line) > room; room = maxWidth - len(indent) {
		end := strings.LastIndexByte(line[:room+1], ' ')
		if end <= 0 {
			end = room
		}
		b.WriteString(line[:end])
		b.WriteString("\n" + indent)
		line = strings.TrimPrefix(line[end:], " ")
	}
	b.WriteString(line)
	return b.String()
}
