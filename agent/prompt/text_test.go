package prompt

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestQuoted: untrusted text cannot change the meaning of a prompt.
func TestQuoted(t *testing.T) {
	for s, want := range map[string]string{
		"kubectl":              `"kubectl"`,
		"":                     `""`,
		"a b%20c":              `"a b?20c"`,
		"a\nfor: root":         `"a?for: root"`,
		"\x1b[2Jgone\a\t\r":    `"?[2Jgone???"`,
		`x" and "y`:            `"x? and ?y"`,
		"<b>&amp;":             `"?b??amp;"`,
		"\u202egnp.exe\u2066":  `"?gnp.exe?"`,
		"zero\u200bwidth":      `"zero?width"`,
		"ali\u0441e":           `"ali?e"`, // a Cyrillic letter that looks like c
		"\xff\xfe":             `"??"`,
		"0123456789abcdef":     `"0123456789abcdef"`,
		"0123456789abcdefg":    `"0123456789abcdef..."`,
		"\u00e90123456789abcd": `"?0123456789abcd"`,
	} {
		if got := quoted(s, 16); got != want {
			t.Errorf("%q is shown as %s, want %s", s, got, want)
		}
	}
}

func FuzzExplain(f *testing.F) {
	seeds := []string{"alice", "a\nto: x", "\u202e", "<b>", strings.Repeat("long ", 200), "%0A", `"`}
	for _, s := range seeds {
		f.Add(s, s)
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, key, other string) {
		s := Subject{Key: key, Purpose: other, Operation: other, Destination: other, Device: other, Again: other}
		text := explain("PIN of key", s, quoted(key, maxName))
		if strings.ContainsAny(text, "<>&\r\t\x1b") || len(text) != utf8.RuneCountInString(text) {
			t.Fatalf("%q", text)
		}
		own := 0
		for _, line := range strings.Split(text, "\n") {
			if len(line) > maxWidth {
				t.Errorf("%q has %d characters", line, len(line))
			}
			if !strings.HasPrefix(line, "    ") {
				own++
			}
		}
		want := 2
		if other != "" {
			want = 5
		}
		if own != want {
			t.Errorf("%d lines of its own, want %d:\n%s", own, want, text)
		}
		if len("SETDESC ")+len(escape(text)) >= maxLine {
			t.Errorf("%d bytes are more than a line takes", len(escape(text)))
		}
	})
}

func TestExplainLeavesOutWhatIsNotKnown(t *testing.T) {
	got := explain("PIN of key", Subject{Key: "alice"}, "who")
	if want := "PIN of key: \"alice\"\nasked by: who"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Only where a signature goes to a server is there one that could be verified.
func TestServersAreNamedForSignInsAlone(t *testing.T) {
	for operation, want := range map[string]bool{
		"sign-tls-client": true, "sign-client-assertion": true, "sign-aws-request": true,
		"sign-certificate-request": false, "sign-tls-server": false, "unlock": false, "create": false, "adopt": false,
	} {
		text := explain("PIN of key", Subject{Key: "alice", Operation: operation}, "who")
		if got := strings.Contains(text, "to: not verified which server"); got != want {
			t.Errorf("%s: got %q", operation, text)
		}
	}
}

// A prompt shows the name and number of the process that reported the caller.
func TestReporterIsNamed(t *testing.T) {
	own, err := look(int32(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	end := fmt.Sprintf(", reported by %s (%d)", quoted(own.Name, maxName), own.PID)
	if got := askedBy(own, Subject{ReportedBy: own.PID}); !strings.HasSuffix(got, end) {
		t.Errorf("got %q, want %q at its end", got, end)
	}
	if got := askedBy(own, Subject{ReportedBy: 1 << 30}); !strings.HasSuffix(got, "reported by a process that is gone (1073741824)") {
		t.Errorf("got %q of who is gone", got)
	}
	if got := askedBy(own, Subject{ReportedBy: own.PID, Verified: true}); strings.Contains(got, "reported") {
		t.Errorf("got %q of a process that the kernel told", got)
	}
}

func TestFault(t *testing.T) {
	for _, test := range []struct {
		s    Subject
		want string
	}{
		{Subject{}, ""}, {Subject{Tries: 3}, "3 tries left"}, {Subject{Tries: 1}, "the last try"}, {Subject{Tries: -1}, ""},
		{Subject{Again: "wrong PIN"}, "wrong PIN"}, {Subject{Again: "wrong PIN\n", Tries: 2}, "wrong PIN?, 2 tries left"},
	} {
		if got := complaint(test.s); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.s, got, test.want)
		}
	}
}

func TestWrap(t *testing.T) {
	long := strings.Repeat("x", maxWidth)
	for line, want := range map[string]string{
		"":                  "",
		long:                long,
		"a " + long:         "a\n    " + long[:maxWidth-4] + "\n    xxxx",
		long + " b":         long + "\n    b",
		long + "xyz":        long + "\n    xyz",
		"asked by: " + long: "asked by:\n    " + long[:maxWidth-4] + "\n    xxxx",
	} {
		if got := wrap(line); got != want {
			t.Errorf("%q became %q, want %q", line, got, want)
		}
	}
}
