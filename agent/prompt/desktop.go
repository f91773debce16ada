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

// sessionVariables is what a program needs to find the desktop.
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

// session returns the variables that lead to the desktop. A user's agent may have
// been started before it, and then the user's systemd manager is told of them
// (systemctl --user import-environment), and no longer the agent.
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

// locale returns what says how characters are written, as setlocale(3) has it.
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
