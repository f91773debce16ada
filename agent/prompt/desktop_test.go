package prompt

import (
	"errors"
	"strings"
	"testing"

	"holdfast/internal/fault"
	"holdfast/test/role"
)

// TestPINOnDesktop sees what a pinentry on the desktop is told, and what of the
// agent's environment.
func TestPINOnDesktop(t *testing.T) {
	pinentry := play(t, "pinentry", script{Replies: gnome})
	s := daemon(t)
	s.Again, s.Tries = "wrong PIN", 1
	pin, err := onDesktop(pinentry.dir).PIN(t.Context(), s)
	if err != nil || string(pin) != "123456" {
		t.Fatalf("got %q, %v", pin, err)
	}
	log := pinentry.log()
	for _, want := range []string{
		"GETINFO flavor\n", "OPTION no-grab\n", "SETTIMEOUT 54\n", "SETTITLE holdfast\n", "SETPROMPT PIN:\n",
		"SETERROR wrong PIN, the last try\n",
		`SETDESC PIN of key: "alice"%0Aon: "card 12345678"%0Afor: "tls-client", "sign-tls-client"%0Ato: not verified which server%0Aasked by: "caller" (`,
		"ENV DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1/bus DISPLAY=:7 " + role.Variable + "=pinentry HOME=/home/alice LANG=C.UTF-8 " +
			"PATH=/usr/bin:/bin PWD=/ WAYLAND_DISPLAY=wayland-0 XAUTHORITY=/run/user/1/auth XDG_RUNTIME_DIR=/run/user/1\n",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in\n%s", want, log)
		}
	}
	for _, never := range []string{"tty", "allow-external-password-cache", "CONFIRM"} {
		if strings.Contains(log, never) {
			t.Errorf("%q in\n%s", never, log)
		}
	}
	if err := gone(pinentry.number("PID")); err != nil {
		t.Error(err)
	}
}

// TestConfirm: only OK confirms.
func TestConfirm(t *testing.T) {
	for name, test := range map[string]struct {
		reply []string
		text  string // "": a yes
	}{
		"yes":       {[]string{"OK"}, ""},
		"no":        {[]string{"ERR 83886194 Not confirmed <Pinentry>"}, "refused on the desktop"},
		"cancelled": {[]string{"ERR 83886179 Operation cancelled <Pinentry>"}, "refused on the desktop"},
		"closed":    {[]string{"ERR 83886278 fully cancelled"}, "refused on the desktop"},
		"timeout":   {[]string{"ERR 83886142 Timeout <Pinentry>"}, "not answered in time"},
		"broken":    {[]string{"ERR 83886251 Locale problem <Pinentry>"}, "cannot be shown"},
		"nonsense":  {[]string{"YES"}, "cannot be shown"},
	} {
		t.Run(name, func(t *testing.T) {
			pinentry := play(t, "pinentry", script{Replies: with("CONFIRM", test.reply...)})
			err := onDesktop(pinentry.dir).Confirm(t.Context(), daemon(t))
			if test.text == "" && err != nil {
				t.Fatal(err)
			}
			if test.text != "" {
				wantKind(t, err, fault.ConfirmationRequired, test.text)
			}
			if errors.Is(err, ErrClosed) != strings.Contains(test.text, "refused") || errors.Is(err, ErrLate) != strings.Contains(test.text, "in time") {
				t.Errorf("%v does not say what became of the prompt", err)
			}
			log := pinentry.log()
			for _, want := range []string{"SETOK Allow\n", "SETCANCEL Refuse\n", "CONFIRM\n", `SETDESC allow the use of key: "alice"%0A`} {
				if !strings.Contains(log, want) {
					t.Errorf("no %q in\n%s", want, log)
				}
			}
			if strings.Contains(log, "one-button") || strings.Contains(log, "GETPIN") {
				t.Errorf("not a question of yes or no:\n%s", log)
			}
		})
	}
}

// TestConfirmOnDesktopAlone: a confirmation is never taken from a terminal, neither for want
// of a desktop nor from a pinentry that falls back to one.
func TestConfirmOnDesktopAlone(t *testing.T) {
	pane := newPane(t, "wait")
	s := subject(t, pane.pid)
	e := wantKind(t, bare(t, "").Confirm(t.Context(), s), fault.ConfirmationRequired, "no desktop")
	if !strings.Contains(e.Hint, "logged in on the desktop") {
		t.Errorf("hint %q", e.Hint)
	}
	for _, flavor := range []string{"curses", "tty", "gnome3:curses", "qt:tty", ""} {
		pinentry := play(t, "pinentry", script{Replies: with("GETINFO", "D "+flavor, "OK")})
		wantKind(t, onDesktop(pinentry.dir).Confirm(t.Context(), s), fault.ConfirmationRequired, "cannot be shown")
		if log := pinentry.log(); strings.Contains(log, "CONFIRM") || strings.Contains(log, "OPTION") {
			t.Errorf("flavor %q was asked:\n%s", flavor, log)
		}
	}
	// The machine's own, which here has no desktop to show a window on.
	own := onDesktop("/usr/bin")
	wantKind(t, own.Confirm(t.Context(), s), fault.ConfirmationRequired, "cannot be shown")
	if screen := pane.Screen(); strings.TrimSpace(screen) != "" {
		t.Errorf("the terminal shows\n%s", screen)
	}
}

// TestWhere says which place each mode takes.
func TestWhere(t *testing.T) {
	pinentry := play(t, "pinentry", script{Replies: gnome})
	nowhere := func(string) string { return "" }
	local, remote := newPane(t, "wait").pid, newPane(t, "wait", "SSH_CONNECTION='192.0.2.1 1 192.0.2.2 22'").pid
	for name, test := range map[string]struct {
		mode    Mode
		pid     int32
		desktop bool
		want    string // a place's name, or what the error says
	}{
		"auto, desktop":             {Auto, local, true, "desktop"},
		"zero value":                {"", local, true, "desktop"},
		"auto, desktop, remote":     {Auto, remote, true, "terminal"},
		"auto, no desktop":          {Auto, local, false, "terminal"},
		"desktop":                   {Desktop, remote, true, "desktop"},
		"desktop, there is none":    {Desktop, local, false, "no desktop"},
		"terminal":                  {Terminal, local, true, "terminal"},
		"off":                       {Off, local, true, "does not prompt"},
		"a word that is not a mode": {"sometimes", local, true, "does not prompt"},
	} {
		t.Run(name, func(t *testing.T) {
			p := onDesktop(pinentry.dir, "/usr/bin")
			p.o = New(Options{Mode: test.mode}).o
			if !test.desktop {
				p.getenv = nowhere
			}
			if strings.Contains(test.want, " ") {
				_, err := p.PIN(t.Context(), subject(t, test.pid))
				wantKind(t, err, fault.PINRequired, test.want)
				return
			}
			who, err := look(test.pid)
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.places(t.Context(), who)
			if err != nil || !strings.HasPrefix(got[0].name, test.want) {
				t.Errorf("got %+v, %v, want %s first", got, err, test.want)
			}
		})
	}
}
