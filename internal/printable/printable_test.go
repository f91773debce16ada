package printable

import (
	"strings"
	"testing"
	"unicode"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"Grüße, 世界 \u0301":         "Grüße, 世界 \u0301",
		"a\x1b[2J\n\u00e9\t\r\x7f": "a?[2J?é???",
		"\u202efoo\u2066\u2028\u2029\u200b\u0085\u00a0": "?foo??????",
		"\xff": "\ufffd",
	} {
		if got := Line(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	if got, want := Lines("a\x1b\n\nb\r\n"), "a?\n\nb?\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzLine(f *testing.F) {
	seeds := []string{"", "a\x1b[2J", "\n", "\xff", "\u202e"}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got := Line(text); strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q: got %q", text, got)
		}
	})
}
