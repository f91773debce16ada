package prompt

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds on the texts of callers in a prompt, in characters. maxWidth is the width
// of pinentry-curses on a terminal of 80 columns.
const (
	maxName        = 64
	maxDestination = 256
	maxWidth       = 70
)

// quoted returns a caller's text in quotation marks. It replaces with a question
// mark every character that could end the quotation, start a line, be interpreted
// by the program that draws the prompt, or imitate other text: characters that do
// not print, characters outside ASCII, those of markup, and Assuan's escape
// character. It cuts the text after most characters and adds three dots.
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
// names them. The others have no server to verify.
var toServers = []string{"sign-tls-client", "sign-client-assertion", "sign-aws-request"}

// explain describes the subject of a prompt, on lines of at most [maxWidth]
// characters, without characters of markup: notification daemons interpret them.
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

// named returns the texts that are not empty, quoted.
func named(texts ...string) string {
	var list []string
	for _, text := range texts {
		if text != "" {
			list = append(list, quoted(text, maxName))
		}
	}
	return strings.Join(list, ", ")
}

// triesLeft returns how many tries a PIN has in words, "" when that is unknown.
func triesLeft(n int) string {
	switch {
	case n == 1:
		return "the last try"
	case n > 1:
		return fmt.Sprintf("%d tries left", n)
	}
	return ""
}

// complaint returns why a PIN is asked for again and how many tries it has.
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

// wrap breaks a line at blanks, and inside a word that is longer than a line.
// Continuation lines are indented, so that a caller's text cannot imitate a line of
// the prompt.
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
