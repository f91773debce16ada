package prompt

import (
	"context"
	"time"

	"github.com/godbus/dbus/v5"

	"holdfast/internal/bus"
)

// The systemd manager of a user (org.freedesktop.systemd1(5)).
const (
	systemd1     = "org.freedesktop.systemd1"
	systemd1Path = "/org/freedesktop/systemd1"
)

// busLimit bounds each conversation on the bus.
const busLimit = 2 * time.Second

// sessionVariables names the variables that lead a program to the desktop.
var sessionVariables = []string{
	"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
	"LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "HOME",
}

// desktop returns the desktop as a place.
func (p *Prompter) desktop(ctx context.Context) (place, error) {
	session := p.session(ctx)
	if !session.graphical() {
		return place{}, problem("there is no desktop to ask on", errNoDesktop)
	}
	at := place{
		name: "desktop", programs: p.pinentries(desktopPinentries),
		env: append(session.only(sessionVariables...), programPath),
	}
	if len(at.programs) == 0 {
		return place{}, p.missing("the desktop", "install pinentry-gnome3 or pinentry-qt", "")
	}
	return at, nil
}

// variables returns the agent's own.
func (p *Prompter) variables() variables {
	v := variables{}
	for name := range grammars {
		v.set(name, p.getenv(name))
	}
	return v
}

// session returns the variables that lead to the desktop. When a user's agent
// starts before the desktop, only the user's systemd manager learns of them
// (systemctl --user import-environment), so session asks the manager.
func (p *Prompter) session(ctx context.Context) variables {
	own := p.variables()
	own.set("DBUS_SESSION_BUS_ADDRESS", bus.Session(own.get))
	if own.graphical() {
		return own
	}
	theirs, err := managerEnvironment(ctx, own["DBUS_SESSION_BUS_ADDRESS"], p.uid)
	if err != nil {
		p.log().Debug("the user's service manager cannot be asked for the desktop", "error", err)
		return own
	}
	for _, name := range sessionVariables {
		if theirs[name] == "" {
			theirs.set(name, own[name])
		}
	}
	return theirs
}

func (v variables) get(name string) string { return v[name] }

func (v variables) graphical() bool { return v["DISPLAY"] != "" || v["WAYLAND_DISPLAY"] != "" }

// locale returns the locale of characters, in the order of setlocale(3).
func (v variables) locale() string {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v[name] != "" {
			return v[name]
		}
	}
	return ""
}

// managerEnvironment returns the environment of the user's systemd manager.
func managerEnvironment(ctx context.Context, address string, uid uint32) (variables, error) {
	ctx, cancel := context.WithTimeout(ctx, busLimit)
	defer cancel()
	conn, err := bus.Dial(ctx, address, bus.Options{UID: uid})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var entries []string
	err = conn.Object(systemd1, systemd1Path).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get",
		dbus.FlagNoAutoStart, systemd1+".Manager", "Environment").Store(&entries)
	if err != nil {
		return nil, err
	}
	v := variables{}
	for _, entry := range entries {
		v.parse([]byte(entry))
	}
	return v, nil
}
