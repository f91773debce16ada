package prompt

import (
	"context"
	"errors"
	"strings"
	"testing"

	"holdfast/internal/fault"
)

// TestNextProgram: a pinentry that cannot show anything is passed over, for the
// next one and then for the terminal.
func TestNextProgram(t *testing.T) {
	broken := play(t, "pinentry", script{Greeting: "ERR 67109144 IPC write error"})
	textual := play(t, "pinentry-gnome3", script{Replies: with("GETINFO", "D gnome3:curses", "OK")})
	working := play(t, "pinentry-qt", script{Replies: gnome})
	pin, err := onDesktop(broken.dir, textual.dir, working.dir).PIN(t.Context(), daemon(t))
	if err != nil || string(pin) != "123456" {
		t.Fatalf("got %q, %v", pin, err)
	}
	pane := newPane(t, "wait")
	c := asking(t.Context(), onDesktop(broken.dir, textual.dir, "/usr/bin"), subject(t, pane.pid))
	pane.prompted()
	pane.Press("4321", "Enter")
	if a := within(t, c); string(a.pin) != "4321" {
		t.Errorf("got %q, %v", a.pin, a.err)
	}
}

// TestNoPinentry names the package that is missing.
func TestNoPinentry(t *testing.T) {
	empty := t.TempDir()
	_, err := onDesktop(empty).PIN(t.Context(), daemon(t))
	if e := wantKind(t, err, fault.PINRequired, "no pinentry for the desktop"); !strings.Contains(e.Hint, "pinentry-gnome3") {
		t.Errorf("hint %q", e.Hint)
	}
	p := bare(t, "")
	p.dirs = []string{empty}
	_, err = p.PIN(t.Context(), subject(t, newPane(t, "wait").pid))
	if e := wantKind(t, err, fault.PINRequired, "no pinentry for terminals"); e.Hint != "install pinentry-curses, or: holdfast unlock alice" {
		t.Errorf("hint %q", e.Hint)
	}
	p = onDesktop(empty)
	p.o.Pinentry = "relative/pinentry"
	_, err = p.PIN(t.Context(), daemon(t))
	if e := wantKind(t, err, fault.PINRequired, `"relative/pinentry" is not a program`); !strings.Contains(e.Hint, "configuration") {
		t.Errorf("hint %q", e.Hint)
	}
}

// TestErrorAtOnceWithoutAPlace: with neither terminal nor desktop, the error comes at once.
func TestErrorAtOnceWithoutAPlace(t *testing.T) {
	p := bare(t, "")
	p.dirs = nil
	_, err := p.PIN(t.Context(), daemon(t))
	wantKind(t, err, fault.PINRequired, "no terminal")
}

// TestStubbornPinentry is one that neither answers nor ends, and leaves a process
// behind that holds on to its output.
func TestStubbornPinentry(t *testing.T) {
	pinentry := play(t, "pinentry", script{Replies: gnome, Hang: "GETPIN", Stubborn: true, Leave: true})
	ctx, cancel := context.WithCancel(t.Context())
	c := asking(ctx, onDesktop(pinentry.dir), daemon(t))
	pid, left := pinentry.number("PID"), pinentry.number("LEFT")
	pinentry.asked("GETPIN")
	cancel()
	a := within(t, c)
	wantKind(t, a.err, fault.PINRequired, "withdrawn")
	if !errors.Is(a.err, context.Canceled) {
		t.Errorf("%v is not the end of the context", a.err)
	}
	if err := gone(pid); err != nil {
		t.Error(err)
	}
	eventually(t, func() error { return gone(left) })
}

// TestOddReplies: whatever a pinentry says, it is no PIN unless it is one.
func TestOddReplies(t *testing.T) {
	for name, lines := range map[string][]string{
		"empty":             {"OK"},
		"unfinished escape": {"D 12%3", "OK"},
		"bad escape":        {"D 12%zz", "OK"},
		"too long":          {"D " + strings.Repeat("1", 200), "D " + strings.Repeat("1", 56), "OK"},
		"endless line":      {strings.Repeat("D", 5000)},
		"endless comments":  {strings.Repeat("# no\n", 200) + "OK"},
		"from a cache":      {"S PASSWORD_FROM_CACHE", "D 123456", "OK"},
		"a question":        {"INQUIRE QUALITY 1", "ERR 83886179 cancelled"},
		"data, then error":  {"D 123456", "ERR 1 123456"},
		"no code":           {"ERR cancelled"},
		"not Assuan":        {"hello"},
		"lower case":        {"ok"},
	} {
		t.Run(name, func(t *testing.T) {
			pinentry := play(t, "pinentry", script{Replies: with("GETPIN", lines...)})
			pin, err := onDesktop(pinentry.dir).PIN(t.Context(), daemon(t))
			if pin != nil {
				t.Errorf("got the PIN %q", pin)
			}
			wantKind(t, err, fault.PINRequired, "")
			if strings.Contains(err.Error(), "123456") {
				t.Errorf("the PIN is in %v", err)
			}
		})
	}
}

// TestPinentryThatSaysLess: settings that an old pinentry does not know are not
// missed, but it must say what the prompt is about.
func TestPinentryThatSaysLess(t *testing.T) {
	unknown := "ERR 83886355 Unknown IPC command <Pinentry>"
	old := play(t, "pinentry", script{Replies: with("SETTIMEOUT", unknown)})
	if pin, err := onDesktop(old.dir).PIN(t.Context(), daemon(t)); string(pin) != "123456" {
		t.Errorf("got %q, %v", pin, err)
	}
	silent := play(t, "pinentry", script{Replies: with("SETDESC", unknown)})
	_, err := onDesktop(silent.dir).PIN(t.Context(), daemon(t))
	wantKind(t, err, fault.PINRequired, "cannot be shown")
}
