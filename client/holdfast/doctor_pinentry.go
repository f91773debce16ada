package main

import (
	"slices"

	"holdfast/internal/agentwire"
)

// pinentry looks for a program that the agent can ask for PINs with, where PINs are
// wanted.
func (f *findings) pinentry(m machine, list []agentwire.Key, cards bool) {
	if !cards && !slices.ContainsFunc(list, func(k agentwire.Key) bool { return k.PIN }) {
		return
	}
	for _, directory := range []string{"/usr/bin/", "/usr/local/bin/"} {
		for _, name := range []string{"pinentry", "pinentry-gnome3", "pinentry-qt", "pinentry-gtk-2", "pinentry-curses", "pinentry-tty"} {
			if m.exists(directory + name) {
				f.ok("pinentry", "%s%s is there to ask for PINs", directory, name)
				return
			}
		}
	}
	f.note("pinentry", "no pinentry is installed, so the agent cannot ask for PINs",
		"apt install pinentry-curses, for the desktop pinentry-gnome3 or pinentry-qt; holdfast unlock NAME works without")
}
