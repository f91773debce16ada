package prompt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"holdfast/internal/fault"
	"holdfast/internal/proc"
)

// A place is the desktop or a terminal on which a user is asked.
type place struct {
	name     string    // in turns
	terminal *terminal // nil: the desktop
	env      []string  // of a pinentry there
	kind     string    // TERM; "" on the desktop and when unknown
	locale   string    // for LC_CTYPE; "" when unknown
	programs []string  // paths of pinentries to try
}

// The directories in which distributions install pinentries, and the programs'
// names in the order in which they are tried. PATH is not used.
var (
	pinentryDirs      = []string{"/usr/bin", "/usr/local/bin"}
	desktopPinentries = []string{"pinentry", "pinentry-gnome3", "pinentry-qt", "pinentry-gtk-2"}
	cursesPinentries  = []string{"pinentry-curses", "pinentry-tty"}
	dumbPinentries    = []string{"pinentry-tty", "pinentry-curses"}
)

// places returns the places on which a user can be asked for the PIN, best first,
// or the reason why there is none.
func (p *Prompter) places(ctx context.Context, who proc.Stat) ([]place, error) {
	caller := environOf(who)
	var list []place
	var why error
	if p.o.Mode == Desktop || p.o.Mode == Auto && !caller.remote() {
		at, err := p.desktop(ctx)
		if list, why = append(list, at), err; err != nil {
			list = nil
		}
	}
	if p.o.Mode != Desktop {
		at, err := p.terminal(who, caller)
		if err == nil {
			list = append(list, at)
		} else if why == nil || errors.Is(why, errNoDesktop) {
			why = err
		}
	}
	if len(list) == 0 {
		return nil, why
	}
	return list, nil
}

// terminal returns the caller's terminal as a place.
func (p *Prompter) terminal(who proc.Stat, caller variables) (place, error) {
	t, err := terminalOf(who, p.uid)
	if err != nil {
		return place{}, err
	}
	names := cursesPinentries
	if kind := caller["TERM"]; kind == "" || kind == "dumb" {
		names = dumbPinentries
	}
	at := place{
		name: fmt.Sprint("terminal ", t.device), terminal: &t, programs: p.pinentries(names),
		kind: caller["TERM"], locale: caller.locale(),
		env: append(p.variables().only("HOME"), append(caller.only("TERM", "LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES"), programPath)...),
	}
	if len(at.programs) == 0 {
		return place{}, p.missing("terminals", "install pinentry-curses", fault.Unlock)
	}
	return at, nil
}

// programPath is PATH for pinentries that are scripts.
const programPath = "PATH=/usr/bin:/bin"

// pinentries returns the paths of the programs to try: the configured one, or the
// installed ones of these names.
func (p *Prompter) pinentries(names []string) []string {
	if p.o.Pinentry != "" {
		if !filepath.IsAbs(p.o.Pinentry) || !program(p.o.Pinentry) {
			return nil
		}
		return []string{p.o.Pinentry}
	}
	var list []string
	seen := map[string]bool{}
	for _, name := range names {
		for _, dir := range p.dirs {
			path := filepath.Join(dir, name)
			real, err := filepath.EvalSymlinks(path)
			if err == nil && !seen[real] && program(real) {
				list, seen[real] = append(list, path), true
			}
		}
	}
	return list
}

// missing is the error that there is no pinentry for one kind of place. The hint
// names a package to install; instead is a step that needs none, or empty.
func (p *Prompter) missing(kind, hint string, instead fault.Step) error {
	if p.o.Pinentry != "" {
		e := problem(fmt.Sprintf("%.80q is not a program", p.o.Pinentry), nil)
		e.Hint = "the agent's configuration names the pinentry, by its absolute path"
		return e
	}
	e := problem("no pinentry for "+kind+" is installed", nil)
	e.Hint, e.Next.Do = hint, instead
	return e
}

// program reports whether path is an executable file.
func program(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
